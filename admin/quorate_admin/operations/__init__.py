"""What can be asked of a cluster: one module, and one mixin of the AdminClient, per concern."""
