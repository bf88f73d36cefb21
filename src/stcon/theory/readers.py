"""Graphs from files: edge lists, JSON and GraphML. A file that is not plainly a directed graph is refused.

* **edgelist**: a line an edge, ``tail head``, whatever follows is ignored; a line with one name is a vertex without
  edges; ``#`` starts a comment. As networkx writes it.
* **json**: ``{"nodes": […], "edges": […]}`` or networkx' node-link form (``links`` for ``edges``; nodes ``{"id": …}``,
  edges ``{"source": …, "target": …}``); nodes may be left out, edges may be pairs. Or an adjacency object
  ``{"a": ["b", "c"], "b": []}``.
* **graphml**: ``graph``, ``node`` and ``edge`` elements; data is ignored. Document types, nested graphs, hyperedges and
  ports are refused.

Names are strings or JSON's numbers; `find_vertex` finds either by its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.parsers import expat

from stcon.theory.graph import Digraph, GraphError

Pair = tuple[Hashable, Hashable]


def read_graph(path: str | Path) -> Digraph:
    """The graph in a file, by the file's suffix: .edgelist (also .edges, .txt), .json or .graphml.

    Raises:
        GraphError: another suffix, or the text is no directed graph of that form.
        OSError: the file cannot be read.
    Cost: linear in the file.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise GraphError(f"{path.name}: not one of the forms read here: {', '.join(READERS)}")
    try:
        return reader(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise GraphError(f"{path.name}: not UTF-8 text") from None
    except GraphError as error:
        raise GraphError(f"{path.name}: {error}") from None


def parse_edgelist(text: str) -> Digraph:
    """A graph from an edge list; vertices are numbered as they first appear."""
    names: list[Hashable] = []
    edges: list[Pair] = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        names += words[:2]
        if len(words) >= 2:
            edges.append((words[0], words[1]))
    return _build(names, edges)


def parse_json(text: str) -> Digraph:
    """A graph from JSON: nodes and edges, networkx' node-link form, or an adjacency object.

    Raises:
        GraphError: it is none of these, or says that it is undirected.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise GraphError(f"not JSON: {error}") from None
    except RecursionError:
        raise GraphError("not a graph: nested too deeply") from None
    if not isinstance(data, dict):
        raise GraphError("not a graph: an object with edges, or of lists of successors, is expected")
    listed = data.get("edges", data.get("links"))
    if not isinstance(listed, list) or ("nodes" not in data and any(isinstance(name, str) for name in listed)):
        return _adjacency(data)
    if data.get("directed") is False:
        raise GraphError("the graph says that it is undirected")
    nodes = data.get("nodes", [])
    if not isinstance(nodes, list):
        raise GraphError("'nodes' is not a list")
    edges = [_json_edge(edge) for edge in listed]
    return _build([_json_name(node, "id") for node in nodes] + [name for edge in edges for name in edge], edges)


def parse_graphml(text: str) -> Digraph:
    """A graph from GraphML.

    Raises:
        GraphError: it is not well-formed, not directed, or uses what is not read here.
    """
    reader = _GraphML()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = reader.start
    parser.StartDoctypeDeclHandler = reader.doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise GraphError(f"not XML: {error}") from None
    if not reader.num_graphs:
        raise GraphError("no graph element")
    return _build(reader.names + [name for edge in reader.edges for name in edge], reader.edges)


READERS: Mapping[str, Callable[[str], Digraph]] = {
    ".edgelist": parse_edgelist,
    ".edges": parse_edgelist,
    ".txt": parse_edgelist,
    ".json": parse_json,
    ".graphml": parse_graphml,
}


def find_vertex(graph: Digraph, text: str) -> int:
    """The vertex whose name is `text`, or is a number written so.

    Raises:
        GraphError: there is none, or there are two (the string "1" and the number 1).
    Cost: O(n).
    """
    found = [vertex for vertex in graph.vertices if str(graph.names[vertex]) == text]
    if len(found) == 1:
        return found[0]
    if found:
        raise GraphError(f"two vertices are written {text!r}")
    some = ", ".join(map(str, graph.names[:8])) + (", …" if graph.order > 8 else "")
    raise GraphError(f"no vertex is named {text!r}; there are {some or 'none at all'}")


class _GraphML:
    """Collects the elements of one flat, directed graph."""

    def __init__(self) -> None:
        self.names: list[Hashable] = []
        self.edges: list[Pair] = []
        self.num_graphs = 0

    def doctype(self, *_: object) -> None:
        raise GraphError("a document type is not read; remove the DOCTYPE")

    def start(self, qualified: str, attributes: dict[str, str]) -> None:
        match qualified.rpartition(" ")[2]:
            case "graph":
                self.num_graphs += 1
                if self.num_graphs > 1:
                    raise GraphError("more than one graph element")
                if attributes.get("edgedefault") != "directed":
                    raise GraphError("edgedefault is not 'directed'")
            case "node":
                self.names.append(_attribute(attributes, "id", "node"))
            case "edge":
                if attributes.get("directed", "true") != "true":
                    raise GraphError("an edge is undirected")
                self.edges.append((_attribute(attributes, "source", "edge"), _attribute(attributes, "target", "edge")))
            case "hyperedge" | "port" as element:
                raise GraphError(f"{element} elements are not read")


def _attribute(attributes: Mapping[str, str], name: str, element: str) -> str:
    if name not in attributes:
        raise GraphError(f"a {element} without {name}")
    return attributes[name]


def _adjacency(data: Mapping[str, Any]) -> Digraph:
    for name, heads in data.items():
        if not isinstance(heads, list):
            raise GraphError(f"not a graph: {name!r} has no list of successors, and there is no list 'edges'")
    edges = [(name, _json_name(head, "id")) for name, heads in data.items() for head in heads]
    return _build([*data, *(head for _, head in edges)], edges)


def _json_edge(edge: Any) -> Pair:
    if isinstance(edge, list) and len(edge) >= 2:
        return _json_name(edge[0], "id"), _json_name(edge[1], "id")
    if isinstance(edge, dict) and "source" in edge and "target" in edge:
        return _json_name(edge["source"], "id"), _json_name(edge["target"], "id")
    raise GraphError("an edge is neither [tail, head] nor {source, target}")


def _json_name(node: Any, key: str) -> Hashable:
    if isinstance(node, dict) and key in node:
        node = node[key]
    if isinstance(node, str) or (isinstance(node, int | float) and not isinstance(node, bool)):
        return node
    raise GraphError("a vertex is named by neither a string nor a number")


def _build(names: Iterable[Hashable], edges: Iterable[Pair]) -> Digraph:
    index: dict[Hashable, int] = {}
    for name in names:
        index.setdefault(name, len(index))
    return Digraph(len(index), ((index[tail], index[head]) for tail, head in edges), list(index))
