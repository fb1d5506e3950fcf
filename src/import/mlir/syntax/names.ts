/** Names: of operations with and without dialect, of values as graph text prints them. */

export function baseName(name: string): string {
  return name.slice(name.indexOf('.') + 1);
}

/** The older dialect has the same operations. */
export function canonicalName(name: string): string {
  return name.startsWith('mhlo.') ? `stablehlo.${name.slice(5)}` : name;
}

/** A name that graph text prints plain: `%0` is `_0`. */
export function plainName(id: string): string {
  const plain = /^\w+$/.test(id) ? id : id.replaceAll(/\W/g, '_');
  return /^[A-Za-z_]/.test(plain) ? plain : `_${plain}`;
}

/** `jit(step)/layers_0` of `jit(step)/layers_0/dot_general`: the scope of an operation. */
export function scopeOf(name: string): string | undefined {
  const slash = name.lastIndexOf('/');
  return slash <= 0 ? undefined : name.slice(0, slash);
}
