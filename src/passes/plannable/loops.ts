/**
 * Counts the runs of the nodes of an opened graph: scopes nest, each runs so many times for every
 * run of the scope around it, and every node is in one. Scope 0 is the program, which runs once. A
 * node may be a mark that places values and never runs itself (a carry, the meeting of branches): a
 * value is moved to a mark as often as its scope runs.
 */
export class Loops {
  private readonly parent: number[] = [-1];
  private readonly depth: number[] = [0];
  /** Runs of each scope for one run of the program. */
  private readonly times: number[] = [1];
  private readonly scopes = new Map<string, number>();
  private readonly marks = new Set<string>();
  private readonly split = new Set<number>();

  /** A scope that runs `count` times for every run of `parent`. */
  scope(parent: number, count: number): number {
    this.parent.push(parent);
    this.depth.push(this.depth[parent] + 1);
    return this.times.push(this.times[parent] * count) - 1;
  }

  /**
   * A scope without code of its own, only marks: every run of it runs bodies, which are scopes in
   * it. Values that pass between its marks and a body are moved in that body.
   */
  splitScope(parent: number, count: number): number {
    const scope = this.scope(parent, count);
    this.split.add(scope);
    return scope;
  }

  place(node: string, scope: number, runs = true): void {
    this.scopes.set(node, scope);
    if (!runs) this.marks.add(node);
  }

  /** Scope of a node; the program for one that nobody placed. */
  scopeOf(node: string): number {
    return this.scopes.get(node) ?? 0;
  }

  /** Tells whether a node only places values. */
  isMark(node: string): boolean {
    return this.marks.has(node);
  }

  /** Runs of a node: 0 for a mark. */
  runsOf(node: string): number {
    return this.isMark(node) ? 0 : this.times[this.scopeOf(node)];
  }

  /** Runs of a scope for one run of the program. */
  timesOf(scope: number): number {
    return this.times[scope];
  }

  /**
   * The scope in which a value of one node is moved for another: the innermost that holds both.
   * What a loop does not change is thus moved once, before it. If that is a split scope, it is the
   * body of one of the two, of the consumer first; for two marks, the last body.
   */
  moveScope(producer: string, consumer: string): number {
    const [from, to] = [this.scopeOf(producer), this.scopeOf(consumer)];
    const common = this.common(from, to);
    if (!this.split.has(common)) return common;
    if (to !== common) return this.childTowards(common, to);
    return from === common ? this.parent.lastIndexOf(common) : this.childTowards(common, from);
  }

  /**
   * How often a value of one node is moved for another: once for every run of the scope in which it
   * is.
   */
  movesBetween(producer: string, consumer: string): number {
    return this.times[this.moveScope(producer, consumer)];
  }

  private childTowards(ancestor: number, scope: number): number {
    let at = scope;
    while (this.parent[at] !== ancestor) at = this.parent[at];
    return at;
  }

  private common(a: number, b: number): number {
    while (a !== b) {
      if (this.depth[a] >= this.depth[b]) a = this.parent[a];
      else b = this.parent[b];
    }
    return a;
  }
}
