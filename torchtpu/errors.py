"""Every error class of TorchTPU: one class a condition, the message template as an attribute.

A message says what was expected, what came, why on a TPU, and what to do. User mistakes also derive from ``ValueError`` or
``TypeError``; operators and constructs that cannot be lowered derive from ``NotImplementedError``. All of them are
``RuntimeError`` as well, because that is what PyTorch's own devices raise and what user code catches.
"""

from __future__ import annotations

import torchtpu._messages as _messages


class TorchTPUError(RuntimeError):
    """Base of every error raised by TorchTPU. Subclasses fill ``template`` from keyword arguments."""

    template = "{message}"

    def __init__(self, message: str | None = None, **fields: object) -> None:
        self.fields = fields
        text = message if message is not None else self.template.format(**fields)
        super().__init__(_messages.with_anchor(text, type(self).__name__))


class InvalidFlagError(TorchTPUError, ValueError):
    """An environment variable ``TORCHTPU_*`` is unknown, or it, or a setting made in code, holds a value that it does not take."""

    template = "{name}={value!r}: expected {expected}. {fix}"
    VALUE = "Set it to one of these, or unset it."
    NAME = "Correct the name, or unset it."
    ARGUMENT = "Give one of these."


class PlatformError(TorchTPUError):
    """The JAX platform that was asked for, or any at all, cannot be started."""

    template = "No {platform} device: {why}. {fix}"


class DeviceIndexError(TorchTPUError, ValueError):
    """A device index that does not exist."""

    template = "tpu:{index}: expected an index below {count}, the number of devices of this process. {fix}"


class MixedDevicesError(TorchTPUError, ValueError):
    """Tensors of different devices were given to one operator."""

    template = (
        "{op}: expected all tensors to be on the same device, but found at least two devices, {one} and {other}. "
        "A TPU reads only its own memory: move one of them with .to().")


class ConflictingPackageError(TorchTPUError):
    """Another package has already registered itself for the name or the slot that we need."""

    template = "{what}: torchtpu was not registered. {fix}"


class UnsupportedVersionError(TorchTPUError):
    """A version of PyTorch that this release was not built for."""

    template = "torchtpu {ours} supports torch {supported}, found {found}. Install the matching one."


class UnsupportedDtypeError(TorchTPUError, ValueError):  # not a TypeError, whose message `@`, `>` and their like throw away
    """A dtype that the operator, or the chip, does not take."""

    template = "{op}: expected {expected}, got {got}. {why} {fix}"


class LayoutError(TorchTPUError, NotImplementedError):
    """A tensor that is not plain memory: sparse, quantized, or nested with strides. XLA knows dense arrays only."""

    template = "{op}: expected dense tensors, got a {kind} one. XLA programs have no such arrays. {fix}"
    DENSE = "Keep it on the CPU, or move x.to_dense()."
    FLOATS = "Keep it on the CPU, or move x.dequantize(); torch._int_mm takes int8 as it is."
    JAGGED = "Use layout=torch.jagged, or pad; in nn.TransformerEncoder, enable_nested_tensor=False."


class JaggedMaskError(TorchTPUError, ValueError):
    """A mask was given to the attention of jagged tensors."""

    template = (
        "scaled_dot_product_attention: expected no attn_mask beside jagged tensors, got {got}. An XLA program has one length for "
        "all sequences: they are padded to the longest, and the mask hides the padding. Use is_causal, or pad them yourself with "
        ".to_padded_tensor().")


class MissingRuleError(TorchTPUError, NotImplementedError):
    """An operator has no rule and no decomposition, and the CPU fallback is off."""

    template = (
        "{op}: no lowering rule and no decomposition exists, and TORCHTPU_FALLBACK=error forbids running it on the CPU. "
        "Move the tensors with .cpu() around this call, or allow the fallback with TORCHTPU_FALLBACK=warn."
    )


class RuleError(TorchTPUError):
    """A lowering rule broke its contract or failed while being traced: our fault, not the user's."""

    template = "{op}: {what}. This is a fault of torchtpu; please report it with the operator and the shapes above."


class CompileError(TorchTPUError):
    """XLA refused the recorded program. Nothing ran; every mutated tensor keeps its previous value."""

    template = "XLA could not compile the recorded program ({num_nodes} operators): {why}"


class CompileLimitError(TorchTPUError):
    """A program would have to be compiled inside ``torch.tpu.limit_compiles()``. It waits: nothing ran and nothing is lost."""

    program_waits = True  # csrc/python/Launch.cpp looks for it
    template = (
        "{line}: expected at most {limit} compiles inside torch.tpu.limit_compiles({limit}), and this is one more: {num_nodes} "
        "operators, ended by {reason}; {difference}. On a TPU a compile takes from seconds to minutes. Warm up with every shape "
        "before, or keep shapes and branches the same; torchtpu.inspect.explain() tells more. Every tensor is as it was: outside "
        "of the limit, the program is compiled when it is needed."
    )


class CompileLimitScopeError(TorchTPUError, TypeError):
    """``torch.tpu.limit_compiles()`` decorates a function whose body runs after the call, when the limit would be over."""

    template = (
        "torch.tpu.limit_compiles: expected a function that is done when it returns, got {function}, a generator or coroutine "
        "function. Its programs would be compiled after the limit. Write `with torch.tpu.limit_compiles(...)` inside of it."
    )


class OutOfMemoryError(TorchTPUError, MemoryError):
    """The program needs more memory than the device has free. Nothing ran; every mutated tensor keeps its previous value."""

    template = (
        "Out of memory on {device}: the program needs {needed}, {free} are free ({live} in live tensors). Nothing ran and "
        "every tensor keeps its value: lower the batch size, checkpoint activations, or drop tensors you no longer need."
    )


class ExecutionError(TorchTPUError):
    """The program failed while it ran. Tensors whose buffers were donated to it are lost."""

    template = "The program failed on {device} while it ran: {why}"


class PoisonedTensorError(TorchTPUError):
    """A tensor whose value was never computed, because the program that should have made it failed earlier."""

    template = "This tensor has no value: the program that should have computed it failed. The first error was: {first}"


class AbstractTensorError(TorchTPUError):
    """The value of a tensor made under ``torchtpu.abstract()`` was asked for."""

    template = (
        "{what}: a tensor made under torchtpu.abstract() has a shape and a dtype but no value. "
        "Compile with it, or make the tensor outside of torchtpu.abstract()."
    )


class ForkedProcessError(TorchTPUError):
    """The device was used in a forked child process."""

    template = (
        "{what}: the tpu device cannot be used in a forked process, because XLA's threads do not survive a fork. "
        "Use multiprocessing's 'spawn' start method, or touch only CPU tensors in the workers."
    )


class AlreadyStartedError(TorchTPUError):
    """A setting that must be made before JAX starts came too late."""

    template = "{what}: JAX has already started with {have}. Set it before the first use of JAX or of the tpu device."


class InteropError(TorchTPUError, TypeError):
    """An array cannot cross between PyTorch and JAX as asked."""

    template = "{what}. {fix}"


class TopologyError(TorchTPUError, ValueError):
    """A TPU topology that libtpu cannot describe, or nothing to compile for it."""

    template = "{what}. {fix}"


class ExportError(TorchTPUError, NotImplementedError):
    """Something in a ``torch.export.ExportedProgram`` has no place in a portable XLA program."""

    template = "{what}{where}: cannot be exported. {why} {fix}"


class ArtifactError(TorchTPUError, ValueError):
    """A path does not hold an exported program, or may not be written."""

    template = "{path}: expected {expected}, found {found}. {fix}"


class MissingPackageError(TorchTPUError, ImportError):
    """A feature needs a package that an extra of torchtpu installs."""

    template = "{what} needs the package {package}, which is not installed. Install it with: pip install 'torchtpu[{extra}]'."


class NanError(TorchTPUError, ArithmeticError):
    """Debug mode found a NaN or an infinity in the result of an operator."""

    template = "{op}: the result holds NaN or infinity. Recorded at {where}."


class PrefetchArgumentError(TorchTPUError, ValueError):
    """An argument of ``torchtpu.data.prefetch`` that it cannot follow."""

    template = "prefetch: expected {expected}, got {got}. {fix}"


class BatchShapeError(TorchTPUError, ValueError):
    """A batch does not have what ``pad``, ``bucket`` or ``fill`` of ``torchtpu.data.prefetch`` names, or does not fit into it."""

    template = "prefetch, {what}: expected {expected}, got {got}. {fix}"


class PrefetchRestartError(TorchTPUError, ValueError):
    """A second loop over prefetched batches of a source that can be read once, such as a generator."""

    template = (
        "prefetch: expected a source that can be read again, got an object of class {kind} that an earlier loop has read from, "
        "ahead of what it used. Let the loops share one iterator, `it = iter(prefetch(...))`, or pass what can be begun anew.")


class PrefetchStateError(TorchTPUError, AttributeError):
    """The state of prefetched batches was asked for, whose source cannot say where it stands."""

    template = (
        "prefetch: expected a source with state_dict and load_state_dict, or get_state and set_state, got an object of class "
        "{kind}. Only the source knows how to begin in the middle: use one that does, such as torchdata's StatefulDataLoader; of "
        "grain, pass iter(dataset).")


class PrefetchForkError(TorchTPUError):
    """An iterator over prefetched batches was used in a forked child process."""

    template = (
        "prefetch: this iterator was made before the process forked, and the thread that loads for it stayed in the parent. Begin "
        "a new one in the child, iter(...), or let the parent load.")


class ShapePolicyError(TorchTPUError, ValueError):
    """A policy of sizes for compiled graphs that cannot be followed."""

    template = "Shape policy: {what}. See torchtpu.compile.ShapePolicy."


class PaddingError(TorchTPUError, NotImplementedError):
    """A compiled graph cannot be padded to a bucket without changing what it returns, and the policy is strict."""

    template = (
        "{op}: expected an operator that padding leaves alone, got {why}. The XLA program of a TPU has fixed sizes, so each "
        "size of this graph is a program of its own. Pad the tensors yourself, or set ShapePolicy(strict=False).")
