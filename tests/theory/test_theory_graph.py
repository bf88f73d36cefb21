"""Digraphs: values with numbered edges, made from networkx graphs and turned back."""

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.theory.graph import Digraph, GraphError


@st.composite
def digraphs(draw, max_order=6, max_size=12):
    order = draw(st.integers(1, max_order))
    vertex = st.integers(0, order - 1)
    return Digraph(order, draw(st.lists(st.tuples(vertex, vertex), max_size=max_size)))


@settings(deadline=None)
@given(digraphs())
def test_neighbours_and_edge_indices_are_parallel(graph):
    """`successors` and `out_edges` name the same edges, as do `predecessors` and `in_edges`; every edge comes once."""
    for v in graph.vertices:
        assert tuple(graph.edges[e] for e in graph.out_edges(v)) == tuple((v, w) for w in graph.successors(v))
        assert tuple(graph.edges[e] for e in graph.in_edges(v)) == tuple((u, v) for u in graph.predecessors(v))
    assert sorted(e for v in graph.vertices for e in graph.out_edges(v)) == list(range(graph.size))


@settings(deadline=None)
@given(digraphs())
def test_reachability_and_order_agree_with_networkx(graph):
    """Descendants, ancestors and acyclicity are those networkx finds; a topological order points every edge forward."""
    other = graph.to_networkx()
    for v in graph.vertices:
        assert graph.descendants(v) == networkx.descendants(other, v) | {v}
        assert graph.ancestors(v) == networkx.ancestors(other, v) | {v}
    order = graph.topological_order()
    assert (order is not None) == networkx.is_directed_acyclic_graph(other)
    if order is not None:
        assert all(order.index(u) < order.index(v) for u, v in graph.edges)


@settings(deadline=None)
@given(digraphs())
def test_networkx_round_trip(graph):
    """A graph survives the way through networkx up to the order of its edges."""
    back = Digraph.from_networkx(graph.to_networkx())
    assert (back.order, sorted(back.edges), back.names) == (graph.order, sorted(graph.edges), graph.names)


@settings(deadline=None)
@given(digraphs())
def test_parallel_edges_get_a_private_middle(graph):
    """Without parallel edges the graph is simple, and contracting the middles gives the old one back."""
    simple = graph.without_parallel_edges()
    assert simple.is_simple
    inner = [(u, v) for u, v in simple.edges if u < graph.order and v < graph.order]
    through = [(simple.predecessors(x)[0], simple.successors(x)[0]) for x in simple.vertices if x >= graph.order]
    assert sorted(inner + through) == sorted(graph.edges)


@pytest.mark.parametrize(
    "order, edges, names", [(1, [(0, 1)], None), (2, [], ["a", "a"]), (2, [], ["a"]), (-1, [], None)]
)
def test_what_is_no_graph_is_refused(order, edges, names):
    """An edge to nowhere, doubled or missing names and a negative order are refused."""
    with pytest.raises(GraphError):
        Digraph(order, edges, names)


def test_undirected_networkx_graphs_are_refused():
    """An undirected graph is not read as a directed one by accident."""
    with pytest.raises(GraphError, match="undirected"):
        Digraph.from_networkx(networkx.path_graph(3))
