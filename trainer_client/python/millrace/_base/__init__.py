"""What the rest of the package stands on: the library, its calls, and arrays on their way into it."""
