"""Graphs from files: every form networkx writes is read back; what is no directed graph is refused."""

import contextlib
import json

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cases import digraphs

from stcon.theory.graph import Digraph, GraphError
from stcon.theory.readers import find_vertex, parse_edgelist, parse_graphml, parse_json, read_graph


def same(graph, other):
    """One graph up to the order of vertices and edges."""

    def named(g):
        return sorted((str(g.names[u]), str(g.names[v])) for u, v in g.edges)

    return sorted(map(str, graph.names)) == sorted(map(str, other.names)) and named(graph) == named(other)


@settings(deadline=None)
@given(digraphs())
def test_what_networkx_writes_is_read_back(graph):
    """Node-link JSON and GraphML keep vertices and parallel edges; an edge list keeps the edges."""
    other = graph.to_networkx()
    assert same(parse_json(json.dumps(networkx.node_link_data(other, edges="edges"))), graph)
    assert same(parse_json(json.dumps(networkx.node_link_data(other, edges="links"))), graph)
    assert same(parse_graphml("\n".join(networkx.generate_graphml(other))), graph)
    touched = graph.induced(v for edge in graph.edges for v in edge)
    assert same(parse_edgelist("\n".join(networkx.generate_edgelist(other))), touched)


@pytest.mark.parametrize(
    "text",
    [
        '{"nodes": ["s", "a", "t"], "edges": [["s", "a"], ["a", "t"]]}',
        '{"edges": [{"source": "s", "target": "a"}, {"source": "a", "target": "t"}]}',
        '{"s": ["a"], "a": ["t"]}',
    ],
)
def test_json_forms(text):
    """Nodes and edges, edges alone, and an adjacency object give one graph."""
    graph = parse_json(text)
    assert same(graph, Digraph(3, [(0, 1), (1, 2)], ["s", "a", "t"]))


def test_adjacency_may_have_a_vertex_named_edges():
    """An adjacency object whose vertex is called edges is no list of edges."""
    assert same(parse_json('{"edges": ["b"]}'), Digraph(2, [(0, 1)], ["edges", "b"]))


def test_edgelist_comments_lone_vertices_and_data():
    """Comments and what follows the two names are dropped; a line with one name is a vertex."""
    graph = parse_edgelist("# a graph\ns a {'weight': 3} # edge\n\nlonely\ns a\n")
    assert graph == Digraph(3, [(0, 1), (0, 1)], ["s", "a", "lonely"])


GRAPHML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}</graphml>'


@pytest.mark.parametrize(
    "parse, text, reason",
    [
        (parse_json, "[1, 2", "not JSON"),
        (parse_json, "[" * 100_000, "nested"),
        (parse_json, "[]", "not a graph"),
        (parse_json, '{"a": 1}', "no list of successors"),
        (parse_json, '{"directed": false, "nodes": [], "edges": []}', "undirected"),
        (parse_json, '{"nodes": {}, "edges": []}', "not a list"),
        (parse_json, '{"edges": [["a"]]}', "neither"),
        (parse_json, '{"edges": [["a", null]]}', "neither"),
        (parse_graphml, "", "not XML"),
        (parse_graphml, "<graphml/>", "no graph"),
        (parse_graphml, GRAPHML.format('<graph edgedefault="undirected"/>'), "edgedefault"),
        (parse_graphml, GRAPHML.format('<graph edgedefault="directed"/>' * 2), "more than one"),
        (parse_graphml, GRAPHML.format('<graph edgedefault="directed"><edge source="a"/></graph>'), "without target"),
        (
            parse_graphml,
            GRAPHML.format('<graph edgedefault="directed"><edge source="a" target="b" directed="false"/></graph>'),
            "undirected",
        ),
        (parse_graphml, GRAPHML.format('<graph edgedefault="directed"><hyperedge/></graph>'), "hyperedge"),
        (parse_graphml, '<!DOCTYPE g [<!ENTITY a "aaaa">]><graphml>&a;</graphml>', "DOCTYPE"),
    ],
)
def test_what_is_no_directed_graph_is_refused(parse, text, reason):
    """Malformed, undirected, nested or hostile files end in a one-line reason."""
    with pytest.raises(GraphError, match=reason) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@settings(deadline=None)
@given(st.text())
def test_no_text_crashes_a_reader(text):
    """Any text is a graph or a GraphError."""
    for parse in (parse_edgelist, parse_json, parse_graphml):
        with contextlib.suppress(GraphError):
            assert isinstance(parse(text), Digraph)


def test_files_are_read_by_their_suffix(tmp_path):
    """The suffix says the form; another one, and text that is not UTF-8, name the file."""
    (tmp_path / "g.edgelist").write_text("s t\n")
    assert read_graph(tmp_path / "g.edgelist") == Digraph(2, [(0, 1)], ["s", "t"])
    (tmp_path / "g.dot").write_text("digraph {}")
    (tmp_path / "g.json").write_bytes(b"\xff")
    for name in ("g.dot", "g.json"):
        with pytest.raises(GraphError, match=name):
            read_graph(tmp_path / name)


def test_vertices_are_found_by_their_text():
    """A number is found as it is written; a text that two names share is refused."""
    assert find_vertex(Digraph(2, [], [10, "a"]), "10") == 0
    with pytest.raises(GraphError, match="two vertices"):
        find_vertex(Digraph(2, [], [1, "1"]), "1")
    with pytest.raises(GraphError, match="no vertex"):
        find_vertex(Digraph(1, [], ["a"]), "b")


def test_numbers_past_the_digit_limit_are_refused():
    """A number too long to be read is no crash."""
    with pytest.raises(GraphError, match="not JSON"):
        parse_json('{"nodes": [' + "1" * 5_000 + '], "edges": []}')
