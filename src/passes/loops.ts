/**
 * How often the nodes of an opened graph run: scopes nest, each runs so many times for every run of the scope around it,
 * and every node stands in one. Scope 0 is the program, which runs once.
 */
export class Loops {
  private readonly parent: number[] = [-1];
  private readonly depth: number[] = [0];
  /** Runs of each scope for one run of the program. */
  private readonly times: number[] = [1];
  private readonly scopes = new Map<string, number>();

  /** A scope that runs `count` times for every run of `parent`. */
  scope(parent: number, count: number): number {
    this.parent.push(parent);
    this.depth.push(this.depth[parent] + 1);
    return this.times.push(this.times[parent] * count) - 1;
  }

  place(node: string, scope: number): void {
    this.scopes.set(node, scope);
  }

  /** Runs of a node; 1 for one that nobody placed. */
  runsOf(node: string): number {
    return this.times[this.scopes.get(node) ?? 0];
  }

  /**
   * How often a value of one node is moved for another: once for every run of the innermost scope that holds both. What a
   * loop does not change is thus moved once, before it.
   */
  movesBetween(producer: string, consumer: string): number {
    return this.times[this.common(this.scopes.get(producer) ?? 0, this.scopes.get(consumer) ?? 0)];
  }

  private common(a: number, b: number): number {
    while (a !== b) {
      if (this.depth[a] >= this.depth[b]) a = this.parent[a];
      else b = this.parent[b];
    }
    return a;
  }
}
