"""Comparison of a module that is loaded with the text that its file has now, which may have been edited since."""

from __future__ import annotations

import ast
import inspect
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from itertools import zip_longest
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PLAIN = {bool, int, float, complex, str, bytes, tuple, type(None)}  # types of constants that are compared


def edited(module: ModuleType, content: bytes) -> bool:
    """Return True if a text would make other functions, defaults or plain constants than a loaded module has.

    Comments and lines may differ. Not compared is what decorators and other modules generate, and what the text binds
    more than once. A module that was not loaded by Python's own loader of files is not compared at all.
    """
    loader = getattr(module.__spec__, "loader", None)
    if type(loader) is not SourceFileLoader:
        return False
    try:
        tree, code = ast.parse(content), _placeless(loader.source_to_code(content, loader.path))
        cached = loader.get_code(loader.name)  # from a .pyc file, if it seems to belong to the text
    except (ImportError, OSError, SyntaxError, ValueError):
        return True
    codes, bound = set(_codes(code)), Counter(name for node in ast.walk(tree) for name in _bound(node))

    def differ(body: Iterable[ast.stmt], live: Mapping[str, Any]) -> bool:
        functions = [inspect.unwrap(getattr(value, "fget", value)) for value in live.values() if _is_function(value)]
        present = [function.__code__ for function in functions if isinstance(function, FunctionType)]
        if any(each.co_filename == loader.path and _placeless(each) not in codes for each in present):
            return True
        for node in body:
            names = _bound(node) or [name for inner in ast.iter_child_nodes(node) for name in _bound(inner)]
            if len(names) != 1 or bound[names[0]] != 1 or (names[0].startswith("__") and names[0] not in live):
                continue  # a class has another name for what begins with two underscores
            value = live.get(names[0])
            if isinstance(node, ast.ClassDef) and isinstance(value, type):
                kinds = value.__mro__ if node.decorator_list else [value]  # a decorator may derive a class from it
                inside = ChainMap(*(dict(vars(kind)) for kind in kinds))
                if (value.__module__, value.__name__) == (loader.name, node.name) and differ(node.body, inside):
                    return True
            elif any(_is_other(*pair) for pair in _constants(node, value)):
                return True
        return False

    return (cached is not None and _placeless(cached) != code) or differ(tree.body, vars(module))


def _is_function(value: Any) -> bool:
    return isinstance(value, FunctionType | staticmethod | classmethod | property)


def _placeless(code: CodeType) -> CodeType:
    """Return code without the places of its lines."""
    inner = tuple(_placeless(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=inner, co_filename="", co_firstlineno=1, co_linetable=b"")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and the codes of what it defines."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a node binds, twice if other modules or other calls may bind them anew."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
            return [name] * 2
        case ast.Global(names=names):
            return names * 2
    return []


def _constants(node: ast.stmt, live: Any) -> Iterator[tuple[ast.expr | None, Any]]:
    """Yield the expressions of a statement, and the values that a loaded module has for them."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        yield node.value, live
    elif isinstance(node, ast.FunctionDef) and isinstance(live, FunctionType) and not node.decorator_list:
        yield from zip_longest(node.args.defaults, live.__defaults__ or ())
        named = live.__kwdefaults__ or {}
        for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            yield value, named.get(argument.arg)
    elif isinstance(node, ast.FunctionDef) and live is None:
        yield ast.Constant(0), None  # a function that is not there


def _is_other(stated: ast.expr | None, value: Any) -> bool:
    try:
        constant = None if stated is None else ast.literal_eval(stated)
    except (TypeError, ValueError):  # computed
        return False
    both = [type(constant), type(value)]
    return _PLAIN.issuperset(both) and (both[0] is not both[1] or constant != value)
