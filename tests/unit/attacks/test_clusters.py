"""Attacks, evaluations and suites of audits are spread over workers by joblib, and the answers are the same."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import joblib
import pytest

from conformance import spark_cluster
from escudo.attacks import attack
from escudo.auditing import Suite
from escudo.utility import evaluate

ARGUMENTS = {"epsilon": 1.0, "choose": [3], "attacks": [("queries", "logistic")], "shadows": 6, "trials": 6, "seed": 3}
SUITE = """
max_runs = 200
seed = 1
[[audit]]
name = "kept"
mechanism = "noisy.py:count"
epsilon = 1.0
[[audit]]
name = "broken"
mechanism = "noisy.py:quiet"
epsilon = 1.0
[[audit]]
name = "missing"
mechanism = "noisy.py:nothing"
epsilon = 1.0
"""
MECHANISMS = """
def count(rows, rng):
    return round(sum(rows) + rng.laplace(), 3)


def quiet(rows, rng):
    return round(sum(rows) + rng.laplace(scale=0.1), 3)
"""


def processes() -> AbstractContextManager[object]:
    return joblib.parallel_config(backend="loky", n_jobs=2)


def threads() -> AbstractContextManager[object]:
    return joblib.parallel_config(backend="threading", n_jobs=3)


@contextmanager
def dask() -> Iterator[None]:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask", n_jobs=2):
        yield


@contextmanager
def ray() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.util.joblib import register_ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves this machine
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        register_ray()
        with joblib.parallel_config(backend="ray"):
            yield
    finally:
        ray.shutdown()


@contextmanager
def spark() -> Iterator[None]:
    joblibspark = pytest.importorskip("joblibspark", reason="joblibspark is not installed")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    quiet["spark.driver.extraJavaOptions"] = spark_cluster.JAVA
    session = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    try:
        joblibspark.register_spark()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own: of local mode, and of joblib's older names
            with joblib.parallel_config(backend="spark", n_jobs=2):
                yield
    finally:
        session.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    (folder / "noisy.py").write_text(MECHANISMS, encoding="utf-8")
    return folder


def answers(rows, schema, folder, **jobs):
    """Return everything that is spread, as plain values without times."""
    attacked = attack("independent", rows, schema, **ARGUMENTS, **jobs).to_json()
    train, test = rows.head(150), rows.tail(100)
    learnt = evaluate(train, test, rows.head(120), schema, targets=2, learners=["logistic"], **jobs).to_json()
    done = Suite.read(folder / "suite.toml").run(**jobs).to_json()
    for one in done["audits"]:
        (one["audit"] or {}).pop("seconds", None)
    return attacked, learnt, done


@pytest.fixture(scope="module")
def alone(folder):
    known = {}

    def of(rows, schema):
        if not known:
            known["answers"] = answers(rows, schema, folder, jobs=1)
        return known["answers"]

    return of


@pytest.mark.parametrize("workers", [processes, threads, dask, ray, spark])
def test_the_answer_is_that_of_one_process(workers, alone, rows, schema, folder):
    expected = alone(rows, schema)
    with workers():
        assert answers(rows, schema, folder) == expected
