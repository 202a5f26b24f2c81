/** Applies a JSON merge patch (RFC 7396) and shares what it does not change. */
export function merge(target: unknown, patch: unknown): unknown {
  if (patch === null || typeof patch !== 'object' || Array.isArray(patch)) return patch;
  const merged: Record<string, unknown> =
    target !== null && typeof target === 'object' && !Array.isArray(target) ? { ...target } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete merged[name];
    // A member called `__proto__` is a member like any other.
    else
      Object.defineProperty(merged, name, {
        value: merge(merged[name], value),
        writable: true,
        enumerable: true,
        configurable: true,
      });
  }
  return merged;
}
