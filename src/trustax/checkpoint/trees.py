"""Pytrees by path: the nested dicts that go to disk, and the comparison of a saved tree with a wanted one.

On disk the leaves stand in dicts of dicts with string keys, whatever the tree's classes in memory (dataclasses, named
tuples, lists), so that a checkpoint can be read without the code that wrote it, and a renamed class does not make it
unreadable. What containers there were is told apart from the leaves, as JSON (``outline``).
"""

from typing import Any

import jax
import numpy as np

Path = tuple[str, ...]
Manifest = dict[str, list]  # "layers/attention/query" -> [[2, 64, 64], "float32"]

_ROOT = ("value",)  # the path of a tree that is a single leaf


def leaves_by_path(tree: Any) -> dict[Path, Any]:
    """The leaves of ``tree`` under their paths, in the tree's own order."""
    leaves: dict[Path, Any] = {}
    for key_path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        path = tuple(_key_name(key) for key in key_path) if key_path else _ROOT
        if any("/" in name for name in path):
            raise ValueError(f"the key in {path} holds a slash, which separates the parts of a path; rename it")
        leaves[path] = leaf
    return leaves


def _key_name(key: Any) -> str:
    return jax.tree_util.keystr((key,), simple=True)


def to_nested(leaves: dict[Path, Any]) -> dict[str, Any]:
    """Plain nested dicts with these leaves; a part of a tree without leaves leaves no trace."""
    nested: dict[str, Any] = {}
    for path, leaf in leaves.items():
        node = nested
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = leaf
    return nested


def lookup(nested: dict[str, Any], path: Path) -> Any:
    """The leaf of ``nested`` at ``path``."""
    node: Any = nested
    for name in path:
        node = node[name]
    return node


def outline(tree: Any, path: Path = ()) -> Any:
    """The containers of ``tree`` as JSON: sequences as lists, others as objects, leaves as their paths."""
    children, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)
    if tree is None:
        return None
    if len(children) == 1 and not children[0][0]:  # a path of no keys leads from the tree to itself: a leaf
        return "/".join(path or _ROOT)
    inside = [outline(child, (*path, _key_name(keys[0]))) for keys, child in children]
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        return inside
    return {_key_name(keys[0]): child for (keys, _), child in zip(children, inside, strict=True)}


def fill(outlined: Any, nested: dict[str, Any]) -> Any:
    """The plain containers of an outline with the leaves of ``nested``."""
    if isinstance(outlined, str):
        return lookup(nested, tuple(outlined.split("/")))
    if isinstance(outlined, list):
        return [fill(child, nested) for child in outlined]
    if isinstance(outlined, dict):
        return {name: fill(child, nested) for name, child in outlined.items()}
    return None


def manifest(tree: Any) -> Manifest:
    """Shape and dtype of every leaf, by path."""
    return {"/".join(path): [list(np.shape(leaf)), _dtype_name(leaf)] for path, leaf in leaves_by_path(tree).items()}


def _dtype_name(leaf: Any) -> str:
    # Python numbers have no dtype; numpy's view of them is what is written. Typed PRNG keys print as "key<fry>".
    return str(leaf.dtype) if hasattr(leaf, "dtype") else str(np.asarray(leaf).dtype)


def differences(saved: Manifest, wanted: Manifest) -> list[str]:
    """One line for every leaf that only one side has, or whose shape or dtype is not the same; empty if equal."""
    lines = []
    for path in sorted(saved.keys() | wanted.keys()):
        if path not in wanted:
            lines.append(f"{path}: {_describe(saved[path])} in the checkpoint, not in this run")
        elif path not in saved:
            lines.append(f"{path}: not in the checkpoint, {_describe(wanted[path])} in this run")
        elif saved[path] != wanted[path]:
            lines.append(f"{path}: {_describe(saved[path])} in the checkpoint, {_describe(wanted[path])} in this run")
    return lines


def _describe(entry: list) -> str:
    shape, dtype = entry
    return f"{dtype}{list(shape)}"
