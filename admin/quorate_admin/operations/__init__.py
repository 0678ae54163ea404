"""The operations of the AdminClient: one module with one mixin class per topic."""
