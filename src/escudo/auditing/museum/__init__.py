"""A museum of broken mechanisms: each as published or reported, with its claim, the truth and the bug in a sentence.

Every piece stands beside a correct twin, and an audit must catch the one and leave the other alone:

* :func:`exhibits`, :func:`exhibit`: the :class:`Exhibit` list, each with inputs that tell piece and twin apart;
* :func:`visit`: audits pieces and twins, and gives one :class:`Finding` each;
* ``_selection``, ``_counts``, ``_training``: the pieces, by what they do.

No piece protects anybody: its noise comes from the generator it is handed.
"""

from __future__ import annotations

from escudo.auditing.museum._counts import (
    BoundedSum,
    CategoriesFromData,
    CategoriesFromSchema,
    GeometricBinaryLog,
    GeometricCount,
    GeometricCutOff,
    GeometricNaturalLog,
    GridLaplace,
    Histogram,
    HistogramInverted,
    HistogramSharedNoise,
    NaiveLaplace,
    PeopleByCanonicalId,
    PeopleByStoredId,
    SnappingLaplace,
    SumNanIgnored,
    SumNanLeak,
    SumWithoutBounds,
)
from escudo.auditing.museum._exhibits import Exhibit, Finding, exhibit, exhibits, visit
from escudo.auditing.museum._piece import Piece
from escudo.auditing.museum._selection import (
    NoisyMaxExponential,
    NoisyMaxLaplace,
    NoisyMaxValueExponential,
    NoisyMaxValueLaplace,
    NumericSparseVector,
    SparseVector1,
    SparseVector2,
    SparseVector3,
    SparseVector4,
    SparseVector5,
    SparseVector6,
)
from escudo.auditing.museum._training import (
    DPSGD,
    DPSGDBatchClipping,
    DPSGDFixedBatches,
    DPSGDForgottenSteps,
    DPSGDLayerClipping,
    DPSGDMeanNoise,
    DPSGDPoisson,
    DPSGDRecordedRate,
    DPSGDReplaceOne,
    DPSGDReplaceOneUndercounted,
    DPSGDSizeLeak,
    DPSGDUnderflow,
    DPSGDWrongRate,
)

__all__ = [
    "DPSGD",
    "BoundedSum",
    "CategoriesFromData",
    "CategoriesFromSchema",
    "DPSGDBatchClipping",
    "DPSGDFixedBatches",
    "DPSGDForgottenSteps",
    "DPSGDLayerClipping",
    "DPSGDMeanNoise",
    "DPSGDPoisson",
    "DPSGDRecordedRate",
    "DPSGDReplaceOne",
    "DPSGDReplaceOneUndercounted",
    "DPSGDSizeLeak",
    "DPSGDUnderflow",
    "DPSGDWrongRate",
    "Exhibit",
    "Finding",
    "GeometricBinaryLog",
    "GeometricCount",
    "GeometricCutOff",
    "GeometricNaturalLog",
    "GridLaplace",
    "Histogram",
    "HistogramInverted",
    "HistogramSharedNoise",
    "NaiveLaplace",
    "NoisyMaxExponential",
    "NoisyMaxLaplace",
    "NoisyMaxValueExponential",
    "NoisyMaxValueLaplace",
    "NumericSparseVector",
    "PeopleByCanonicalId",
    "PeopleByStoredId",
    "Piece",
    "SnappingLaplace",
    "SparseVector1",
    "SparseVector2",
    "SparseVector3",
    "SparseVector4",
    "SparseVector5",
    "SparseVector6",
    "SumNanIgnored",
    "SumNanLeak",
    "SumWithoutBounds",
    "exhibit",
    "exhibits",
    "visit",
]
