"""Compiler of functions that only kernels call ("helpers").

Helpers are not optimised or compiled on their own. Their LLVM IR is linked into each kernel and optimised there.

By default, Numba optimises each function that a kernel calls separately, generates machine code and wrappers for calls
from Python and C, and then optimises a copy of the function again in each caller. The first part is wasted, and took
almost half of the compile time of the large kernels. Passes that never apply to these functions are skipped as well.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import FixupArgs, GenericRewrites, IRProcessing, ReconstructSSA, TranslateByteCode


class _HelperLibrary(JITCodeLibrary):  # type: ignore[misc]
    """LLVM module of a helper and of the functions that it calls, to be linked into kernels."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._final_module.verify()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=False)
class _HelperLowering(NativeLowering):  # type: ignore[misc]
    """Lowers a helper to LLVM IR, and registers it so that kernels can call it, without generating machine code.

    Numba expects a function object for each compiled function. That of a helper is a placeholder at address 0: kernels
    link the helper's IR, so neither Python nor a kernel ever calls it. It keeps the environment and the library alive.
    """

    _name = "helper_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _HelperLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state.cr
        placeholder_function = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), lowered.fndesc.qualname, "", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(placeholder_function, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=placeholder_function)
        return True


_HELPER_PASSES = {
    **dict.fromkeys((TranslateByteCode, FixupArgs, IRProcessing, GenericRewrites, ReconstructSSA)),
    **dict.fromkeys((NopythonTypeInference, PreLowerStripPhis, IRLegalization)),
    NativeLowering: _HelperLowering,
    NoPythonBackend: None,
}
"""The passes of Numba's pipeline to run on helpers: None runs the pass as it is, a class replaces it. Passes for
closures, array expressions, `with` and `raise` are left out, because helpers do not have these."""


class HelperCompiler(CompilerBase):  # type: ignore[misc]
    """Runs the passes of Numba's pipeline that are in _HELPER_PASSES."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("helper")
        for numba_pass, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if numba_pass in _HELPER_PASSES:
                passes.add_pass(_HELPER_PASSES[numba_pass] or numba_pass, description)
        passes.finalize()
        return [passes]
