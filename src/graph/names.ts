/** Names near the wanted ones that are still free. */
export class FreeNames {
  /** The next number to try, by wanted name. */
  private readonly nextSuffix = new Map<string, number>();

  /** @param taken knows every name that was given out */
  constructor(private readonly taken: { has(name: string): boolean }) {}

  /** `base`, or `base_1`, `base_2` where taken; linear over all calls. */
  near(base: string): string {
    if (!this.taken.has(base)) return base;
    let suffix = this.nextSuffix.get(base) ?? 1;
    while (this.taken.has(`${base}_${suffix}`)) suffix++;
    this.nextSuffix.set(base, suffix + 1);
    return `${base}_${suffix}`;
  }
}
