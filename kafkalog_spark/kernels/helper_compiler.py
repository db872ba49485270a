"""Compiler of functions that only kernels call: it leaves their optimising to the kernels.

Numba optimises each function that a kernel calls by itself, makes machine code of it and wrappers that Python and C
would call it by, and then optimises a copy of it once more in each of its callers. Of decode_json's 40 functions that
was 4 of 9 s of processor time; steps that find nothing to do in any of them were 1 s of what is left.
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
    """A helper's code, and what it calls, for kernels to link."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._final_module.verify()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=False)
class _HelperLowering(NativeLowering):  # type: ignore[misc]
    _name = "helper_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _HelperLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state.cr
        no_code = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), lowered.fndesc.qualname, "", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(no_code, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=no_code)
        return True


_STEPS = {
    **dict.fromkeys((TranslateByteCode, FixupArgs, IRProcessing, GenericRewrites, ReconstructSSA)),
    **dict.fromkeys((NopythonTypeInference, PreLowerStripPhis, IRLegalization)),
    NativeLowering: _HelperLowering,
    NoPythonBackend: None,
}
"""Those of Numba's steps that a helper needs, and what takes their place; it has no closures, array expressions, `with`
or `raise`."""


class HelperCompiler(CompilerBase):  # type: ignore[misc]
    """The needed ones of Numba's own steps, but for the last one."""

    def define_pipelines(self) -> list[PassManager]:
        steps = PassManager("helper")
        for step, why in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step in _STEPS:
                steps.add_pass(_STEPS[step] or step, why)
        steps.finalize()
        return [steps]
