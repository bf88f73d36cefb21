"""``python -m stcon.integrations.mlx_lm …``: mlx_lm.server with its own options, constraints enforced."""

from mlx_lm import server

from stcon.integrations.mlx_lm.server import install

if __name__ == "__main__":
    install()
    server.main()
