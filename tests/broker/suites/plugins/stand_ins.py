"""Modules that a suite imports but does not need here. All their attributes are classes; to make one skips a test."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import pytest


class _Module(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Absent,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Absent(Exception):
    """An exception too, since some of these names are caught or raised."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pytest.skip(f"{type(self).__module__}.{type(self).__name__} is not there")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if any(fullname == name or fullname.startswith(name + ".") for name in self._names):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install(*names: str) -> None:
    """Let these modules, and all below them, be imported."""
    sys.meta_path.insert(0, _Finder(names))
