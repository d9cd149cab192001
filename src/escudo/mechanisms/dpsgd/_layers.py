r"""Layers that know the length of a row's gradient without computing it: ghost norms.

A layer sees an input a and, after a backward pass, the gradient d of the row's loss by its output. The gradient by the
layer's parameters is a function of a and d alone, and its squared length needs no array of the parameters' size:

=========  ============================  ======================================================
layer      gradient of one row           its squared length
=========  ============================  ======================================================
dense      a dᵀ, and d for the bias      ‖a‖² ‖d‖² + ‖d‖²
masked     M ∘ a dᵀ, and d               (a²)ᵀ M d² + ‖d‖²
embedding  at each id the sum of its d   Σ over ids of ‖the sum of its d‖²
bias       d                             ‖d‖²
=========  ============================  ======================================================

So one backward pass by the layers' outputs gives all lengths, and products of a with the rows' d times their clip
factors give the sum of the clipped gradients: as much work as a step without privacy, and one elementwise pass more.

The outputs' gradients come from *taps*: arguments of every layer that its output does not depend on, whose derivative
is defined to be the gradient by the output.

**Clipping is total.** Whatever a and d hold, NaN and infinities included, a row adds a vector of norm at most C.
*Proof.* Let u = 2⁻²⁴, C between 2⁻³⁰ and 2⁶⁰, and S the square of the row's length as it is computed. All sums are of
terms ≥ 0. So n of them, in whatever order, lose at most the factor (1 - u)ⁿ, and products and roots one u each. A
square that underflows, or a number below 2⁻¹²⁶ that a processor takes for 0, loses less than 2⁻¹²⁵: every factor of S
is given that much per term (``_floor``). A product of factors loses 2⁻¹²⁶ at most. With η for the sum of these, far
below C² 2⁻⁵⁰, S ≥ (1 - u)ᵏ (S° - η) for S° = Σ over layers of ‖a dᵀ‖² + ‖d‖², where k is the number of terms in a
layer's sums, and of layers, and ten more for single operations.

If S is no finite number, the row is dropped: f = 0, and d is replaced by 0, not multiplied. That covers every overflow,
infinity and NaN: each entry of d enters S by its square times at least 2⁻¹²⁵, and hides behind no a of 0 and no mask.
Otherwise every ‖a‖ (whose entries were set to 0 where they are not finite) and ‖d‖ is below 2⁶⁴ where they meet, and
f = min(1, L / √S), from five operations, is at least 2⁻⁹⁵. The row adds a · fl(f d), which rounds twice, and where f d
underflows is off by 2⁻¹⁵⁰ ‖a‖ < C 2⁻⁵⁶ at most. As f ≤ 1, f² S° ≤ L² (1 - u)⁻ᵏ + η, and the norm is at most C for
L = C (1 - u)^{k/2 + 40}. ∎ Up to sums of 1,950 terms that is more than C (1 - 2⁻¹⁴), which is what L is then
(``_shrunk``).

*Embeddings.* One id's gradients may cancel, and a square computed from their products may then be anything, also below
0. So they are added up first, to v with an error of at most L u R for L places and R the sum of the norms of the id's
d. The sum of f d has such an error again; hence (‖v‖ + 4 (L + 2) u R)² is what an id adds to S. The ids that norms
compare, and those that gradients go to, are one array, in which -1 has become the last id.

*Masks.* What a mask leaves out is left out of the sum by a choice, not by a product: of two rows an entry that no norm
counts might have grown to infinity, and infinity times 0 is NaN.

That is about what one row adds. Adding up rows rounds too, by about u times the sum, in a way that every row has a part
in; like the noise, which is float32, it is why the guarantee is not called float-safe.

**Rounded factors.** With ``precision="bfloat16"`` a layer multiplies inputs a and gradients d that were rounded to 8
bits, and adds up in float32: twice as fast where processors can do that. Clipping stays sure, because lengths are those
of the very factors that are multiplied. A row with clip factor f adds [a, 1] ⊗ r(f d), where r rounds to nearest and so
lengthens no entry by more than one part in 2⁸, or by 2⁻¹³⁴ where it has underflowed, which is less than C 2⁻³⁹ for a
whole entry of a dᵀ; with S the sum over layers of (‖a‖² + 1) ‖d‖², and f ≤ L / √S,

.. math:: \sum_{layers} (‖a‖² + 1) ‖r(f d)‖² \le (1 + 2^{-8})² f² S \le (1 + 2^{-8})² L² \le C²

for L = C (1 - 2⁻⁸). Products of two such numbers are exact in float32. For embeddings f d is not rounded, as gradients
of one id in several places are added up. Compilers must not undo the rounding of a and d, nor round what is not rounded
here; accelerators do both unless they are told otherwise (``_rounded``, ``_EXACT``).

**Reference.** X. Li et al. (2022), "Large language models can be strong differentially private learners", ICLR, section
4, for ghost clipping; Z. Bu et al. (2023), "Differentially private optimization on large model at small cost", ICML,
for doing without the second backward pass. I. Goodfellow (2015), arXiv:1510.01799, for the dense layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # jax arrays and tracers share no public type that says more
Tree = dict[str, dict[str, Array]]
Precision = Literal["float32", "bfloat16"]

_SHRINK = {"float32": 1 - 2.0**-14, "bfloat16": (1 - 2.0**-14) * (1 - 2.0**-8)}
"""Lengths are computed in float32, to about one part in 10⁶; clipping to a hair less covers it, and rounded factors."""

_UNIT = 2.0**-24
"""The most that an operation of float32 changes its result by, as a share of it."""

_EXACT = jax.lax.Precision.HIGHEST
"""For what clipping rests on: accelerators round factors of float32 products to 11 bits, unless they are told."""

_TOP = {
    "float32": np.finfo(np.float32).max,
    "bfloat16": np.nextafter(np.float32(2.0**128 - 2.0**119), np.float32(0)),  # from there on to infinity
}
"""The largest float32 that is a finite number once it is rounded."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the arrays of a network's layers lie in one flat vector of parameters.

    Args:
        shapes: ``(layer, array, shape)`` for every array, such as ``("encode", "w", (222, 128))``.
    """

    shapes: tuple[tuple[str, str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(math.prod(shape) for _, _, shape in self.shapes)

    def unflatten(self, flat: Array) -> Tree:
        """Return the arrays of each layer."""
        tree: Tree = {}
        start = 0
        for layer, name, shape in self.shapes:
            stop = start + math.prod(shape)
            tree.setdefault(layer, {})[name] = flat[start:stop].reshape(shape)
            start = stop
        return tree

    def flatten(self, tree: Mapping[str, Mapping[str, Array]]) -> Array:
        """Return the arrays as one vector."""
        return jnp.concatenate([jnp.ravel(tree[layer][name]) for layer, name, _ in self.shapes])


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a layer leaves for its gradient: its input (or ids), and what kind of layer it is."""

    kind: str
    bias: bool
    mask: Any = None
    size: int = 0

    def squares(self, a: Array, d: Array) -> Array:
        """Return the squared length of each row's gradient: not less than it is, but for the rounding of sums."""
        d = d.astype(jnp.float32)
        if self.kind == "embedding":
            return _of_sums(a, d)
        if self.kind == "masked":
            a, floor = a.astype(jnp.float32), _floor(a.shape[-1])
            by_output = jnp.matmul(a * a, self.mask, precision=_EXACT) + (floor + (1.0 if self.bias else 0.0))
            return (by_output * (d * d + _floor(1))).sum(axis=-1)
        own = (d * d).sum(axis=-1) + _floor(d.shape[-1])
        if self.kind == "bias":
            return own
        a = a.astype(jnp.float32)
        return ((a * a).sum(axis=-1) + (_floor(a.shape[-1]) + (1.0 if self.bias else 0.0))) * own

    def terms(self, a: tuple[int, ...], d: tuple[int, ...]) -> int:
        """Return how many terms the sums of :meth:`squares` have, for shapes of a and d."""
        return (
            d[-1] + (a[-1] if self.kind in ("dense", "masked") else 0) + (2 * d[1] if self.kind == "embedding" else 0)
        )

    def gradient(self, a: Array, d: Array) -> dict[str, Array]:
        """Return the sum of the rows' gradients, with their factors already in ``d``."""
        if self.kind == "embedding":
            rows = jnp.zeros((self.size, d.shape[-1]), jnp.float32)
            return {"w": rows.at[a.reshape(-1)].add(d.reshape(-1, d.shape[-1]).astype(jnp.float32))}
        summed = {"b": d.astype(jnp.float32).sum(axis=0)} if self.bias else {}
        if self.kind == "bias":
            return summed
        w = _outer_sum(a, d)
        return {"w": jnp.where(self.mask > 0, w, 0) if self.kind == "masked" else w} | summed


def _floor(terms: int) -> np.float32:
    """Return what a sum of so many squares has lost to underflow, or more."""
    return np.float32(terms * 2.0**-125)


def _of_sums(ids: Array, d: Array) -> Array:
    """Return Σ over ids of the squared norm of the sum of the id's d, or a little more; see the module's text."""
    places, width = d.shape[1:]
    equal = ids[:, :, None] == ids[:, None, :]
    first = ~(equal & np.tril(np.ones((places, places), bool), -1)).any(axis=2)
    alike = equal.astype(jnp.float32)
    sums = jnp.einsum("blm,bme->ble", alike, d, precision=_EXACT)
    lengths = jnp.sqrt((d * d).sum(axis=-1) + _floor(width))
    around = jnp.einsum("blm,bm->bl", alike, lengths, precision=_EXACT)
    of_sums = jnp.sqrt((sums * sums).sum(axis=-1) + _floor(width))
    whole = of_sums + np.float32(4 * (places + 2) * _UNIT) * around
    return (jnp.where(first, whole, 0) ** 2).sum(axis=-1) + _floor(places)


def _dot(a: Array, b: Array, over: tuple[int, int], precision: Any = None) -> Array:
    over_both = (((over[0],), (over[1],)), ((), ()))
    return jax.lax.dot_general(a, b, over_both, precision=precision, preferred_element_type=jnp.float32)


def _outer_sum(a: Array, d: Array) -> Array:
    """Return Σ a dᵀ over rows.

    Turned in two parts, so that XLA lays out aᵀ as it is written: a plain transpose would be folded into the product,
    which then takes twice as long, and in bfloat16 four times.
    """
    rows, width = a.shape
    part = math.gcd(rows, 8)
    turned = a.reshape(rows // part, part, width).transpose(2, 0, 1).reshape(width, rows)
    return _dot(turned, d, (1, 0), _EXACT if a.dtype == jnp.float32 else None)


def _product_kept(a: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    return _dot(a, w, (1, 0)), (a, w)


def _product_back(kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    a, w = kept
    d = g.astype(a.dtype)
    return _dot(d, w, (1, 1)).astype(a.dtype), _outer_sum(a, d).astype(w.dtype)


_product: Any = jax.custom_vjp(lambda a, w: _dot(a, w, (1, 0)))
"""a w in float32; in the gradients too, factors have the precision of a and w."""
_product.defvjp(_product_kept, _product_back)


def _tapped_back(kind: Array, g: Array) -> tuple[Array, Array]:
    d = _rounded(g, kind.dtype.name)
    return d.astype(g.dtype), d


def _rounded(x: Array, dtype: str) -> Array:
    """Return x in this type, rounded for good.

    XLA for accelerators leaves out a conversion that another one takes back, and lengths would be those of numbers that
    are not rounded. It keeps to ``reduce_precision``, which on processors costs one step in 16 and is not needed.
    """
    if dtype == "float32":
        return x.astype(dtype)
    round_for_good = partial(jax.lax.reduce_precision, exponent_bits=8, mantissa_bits=7)
    return jax.lax.platform_dependent(x, cpu=lambda x: x, default=round_for_good).astype(dtype)


def _held(x: Array, dtype: str) -> Array:
    return _rounded(jnp.where(jnp.abs(x) <= _TOP[dtype], x, 0), dtype)


_finite: Any = jax.custom_vjp(_held, nondiff_argnums=(1,))
"""x, of float32, in this type, with 0 for what is no finite number there; gradients pass as if all of them were."""
_finite.defvjp(lambda x, dtype: (_held(x, dtype), None), lambda dtype, _, g: (g.astype(jnp.float32),))


_tapped: Any = jax.custom_vjp(lambda y, tap: y)
"""y itself; the derivative by the tap is the gradient by y, rounded to the tap's precision, as it goes on."""
_tapped.defvjp(lambda y, tap: (y, jnp.zeros((), tap.dtype)), _tapped_back)


class Tape:
    """Runs the layers of a network on a batch and keeps what ghost clipping needs of each.

    A network is a function of a tape and a batch that returns one loss per row. Every parameter it uses must come
    through the tape, each layer once, and no row's loss may depend on another row.

    Args:
        parameters: The arrays of each layer.
        taps: For the gradients by each layer's output; None for none.
        precision: What dense and masked layers round their inputs, weights and gradients to.
    """

    def __init__(self, parameters: Tree, taps: Mapping[str, Array] | None = None, precision: Precision = "float32"):
        self.parameters = parameters
        self.layers: dict[str, _Kept] = {}
        self.inputs: dict[str, Array] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._taps = taps
        self._dtype = jnp.dtype(precision)

    def dense(self, layer: str, x: Array) -> Array:
        """Return x W + b, for x of shape (rows, inputs); without b if the layer has none.

        An entry that is no finite number, or would be rounded to none, counts as 0, here and in the gradient by W; the
        gradient by x goes on as if it did not.
        """
        return self._linear(layer, x, None)

    def masked(self, layer: str, x: Array, mask: np.ndarray[Any, Any]) -> Array:
        """Return x (W ∘ M) + b, for a mask M of zeros and ones."""
        # Where nothing is masked: also, jax 0.10 on CPUs now and then gives NaN for x @ M with M all ones.
        return self._linear(layer, x, None if mask.all() else mask)

    def _linear(self, layer: str, x: Array, mask: np.ndarray[Any, Any] | None) -> Array:
        own, a = self.parameters[layer], _finite(x.astype(jnp.float32), self._dtype.name)
        w = (own["w"] if mask is None else own["w"] * mask).astype(self._dtype)
        y = _product(a, w)
        kept = _Kept("dense" if mask is None else "masked", "b" in own, mask)
        return self._out(layer, kept, a, y + own["b"] if "b" in own else y)

    def embedding(self, layer: str, ids: Array) -> Array:
        """Return the vectors of the ids, of shape (rows, places, width) for ids of shape (rows, places).

        Ids below 0 count from the end, -1 for the last one; those that are out of range count as the nearest in it.
        """
        table = self.parameters[layer]["w"]
        size = table.shape[0]
        if not jnp.issubdtype(ids.dtype, jnp.integer):
            raise ValueError(f"layer {layer!r}: ids must be whole numbers; got {ids.dtype}")
        wide = ids.astype(jnp.int32)
        known = jnp.clip(jnp.where(wide < 0, wide + size, wide), 0, size - 1)
        return self._out(layer, _Kept("embedding", False, size=size), known, table[known])

    def bias(self, layer: str, rows: int) -> Array:
        """Return the layer's vector b, once for each row."""
        b = self.parameters[layer]["b"]
        return self._out(layer, _Kept("bias", True), jnp.zeros((rows, 0)), jnp.broadcast_to(b, (rows, *b.shape)))

    def _out(self, layer: str, kept: _Kept, given: Array, y: Array) -> Array:
        if layer in self.layers:
            raise ValueError(f"layer {layer!r} is used twice; ghost norms hold for layers that are used once")
        self.layers[layer], self.inputs[layer], self.shapes[layer] = kept, given, y.shape
        return y if self._taps is None else _tapped(y, self._taps[layer])


LossFn = Callable[[Tape, Any, Array], Array]
"""A network: tape, batch and key give one loss per row.

Its own randomness is ``normal(key, ..., stream=1)`` or above: stream 0 of the same key is the noise of the step.
"""


def clipped_sum(
    loss_fn: LossFn,
    parameters: Tree,
    batch: Any,
    key: Array,
    weights: Array,
    clip_norm: Array,
    precision: Precision = "float32",
) -> tuple[Tree, Array]:
    """Return the sum over rows of their gradients, each clipped to ``clip_norm`` and times its weight, and the losses.

    Args:
        loss_fn: The network.
        parameters: Its parameters.
        batch: The rows, as arrays whose first axis runs over them.
        key: For randomness inside the network.
        weights: 1 for each row and 0 for padding, of shape (rows,).
        clip_norm: The largest l2 norm of a row's contribution, from 2⁻³⁰ to 2⁶⁰; infinity clips nothing.
        precision: What the factors of gradients are rounded to.

    Returns:
        The sum, of the parameters' shapes, and the rows' losses, which are private.

    **Guarantee.** Whatever a row holds, it adds a vector of l2 norm at most ``clip_norm``; a row whose gradient is not
    finite adds nothing.
    """
    layers, inputs, by_output, squares, losses = _taped(loss_fn, parameters, batch, key, precision)
    terms = max(kept.terms(inputs[layer].shape, by_output[layer].shape) for layer, kept in layers.items())
    limit = clip_norm * np.float32(_shrunk(precision, terms + len(layers)))
    # In this order, so that an infinite bound gives 1 and no row divides by zero.
    factors = weights / jnp.maximum(1.0, jnp.sqrt(squares) / limit)
    factors = jnp.where(jnp.isfinite(squares) & (weights > 0), factors, 0.0)

    def scaled(d: Array, kept: _Kept) -> Array:
        wide = factors.reshape(-1, *[1] * (d.ndim - 1))
        product = jnp.where(wide > 0, d, 0).astype(jnp.float32) * wide
        # One id's gradients in several places add up, and may cancel: rounding each could lengthen what is left.
        return product if kept.kind == "embedding" else product.astype(d.dtype)

    total = {layer: kept.gradient(inputs[layer], scaled(by_output[layer], kept)) for layer, kept in layers.items()}
    return total, losses


def _shrunk(precision: Precision, terms: int) -> float:
    """Return the share of the bound that computed lengths are clipped to, for sums of so many terms."""
    kept = math.exp((terms / 2 + 40) * math.log1p(-_UNIT))
    return _SHRINK[precision] * min(1.0, kept / (1 - 2.0**-14))


def gradient_norms(loss_fn: LossFn, parameters: Tree, batch: Any, key: Array) -> Array:
    """Return the l2 norm of each row's gradient, before clipping: of public or simulated rows, to choose a bound by."""
    return jnp.sqrt(_taped(loss_fn, parameters, batch, key, "float32")[3])


def _taped(
    loss_fn: LossFn, parameters: Tree, batch: Any, key: Array, precision: Precision
) -> tuple[dict[str, _Kept], dict[str, Array], dict[str, Array], Array, Array]:
    """Return the layers, their inputs, the gradients by their outputs, the rows' squared norms and losses."""
    shapes: dict[str, tuple[int, ...]] = {}
    layers: dict[str, _Kept] = {}

    def outline(tree: Tree) -> Array:
        tape = Tape(tree, None, precision)
        losses = loss_fn(tape, batch, key)
        shapes.update(tape.shapes)
        layers.update(tape.layers)
        return losses

    jax.eval_shape(outline, parameters)

    def tapped(taps: dict[str, Array]) -> tuple[Array, tuple[Array, dict[str, Array]]]:
        tape = Tape(parameters, taps, precision)
        losses = loss_fn(tape, batch, key)
        return losses.sum(), (losses, tape.inputs)

    taps = {layer: jnp.zeros(shape, precision) for layer, shape in shapes.items()}
    by_output, (losses, inputs) = jax.grad(tapped, has_aux=True)(taps)
    # Added up along an axis: the sum of many arrays XLA would compute anew for every entry that is multiplied by it.
    squares = jnp.stack([layers[layer].squares(inputs[layer], by_output[layer]) for layer in layers]).sum(axis=0)
    return layers, inputs, by_output, squares, losses
