/* Mistakes of callers against a real node: each an error of its own, and nothing changed by it. */
