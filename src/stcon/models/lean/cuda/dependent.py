"""Programmatic dependent launch: a kernel starts while the one before it ends, and fetches its weights meanwhile.

A step at one row is some 150 kernels of a few microseconds, and a plain launch leaves the memory idle between two of
them. With the launch attribute set, the next kernel's blocks start as soon as every block of this one has said that
they may and there is room; they may touch what no kernel of the step writes (weights, older tokens' keys), then wait
until the kernel before has ended and its writes can be seen. Nothing is written before that, so none can overtake.

`PDL` is 0 (plain launches), 1 (the next may start once this one has waited: at most two at once) or 2 (at once: as
many as there is room for, which pays where each is short). A step's first kernel is a plain one of torch's, so what an
earlier step wrote is there.

Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch"; PTX ISA, griddepcontrol and prefetch.
"""

import triton
import triton.language as tl


@triton.jit
def begin(PDL: tl.constexpr):
    """To be called before anything is read that the step writes, and before any write."""
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()
    if PDL > 0:
        tl.extra.cuda.gdc_wait()
    if PDL == 1:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def prefetch(pointers, PDL: tl.constexpr):
    """Ask for the cache lines at `pointers` to be brought to the L2 cache, before `begin`."""
    if PDL > 0:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
            "=r,l",
            [pointers.to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
