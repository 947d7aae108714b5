"""The HTTP side: what engines are told, and what comes back from them."""
