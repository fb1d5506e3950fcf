/** Binary heap of variables by (cells, work, number) with changeable keys. */
export class EliminationHeap {
  private readonly heap: Int32Array;
  private readonly where: Int32Array;
  private readonly cells: Float64Array;
  private readonly work: Float64Array;
  private length = 0;

  constructor(count: number) {
    this.heap = new Int32Array(count);
    this.where = new Int32Array(count).fill(-1);
    this.cells = new Float64Array(count);
    this.work = new Float64Array(count);
  }

  push(v: number, cells: number, work: number): void {
    this.cells[v] = cells;
    this.work[v] = work;
    if (this.where[v] < 0) {
      this.heap[this.length] = v;
      this.where[v] = this.length++;
    }
    this.up(this.where[v]);
    this.down(this.where[v]);
  }

  pop(): number {
    if (this.length === 0) return -1;
    const v = this.heap[0];
    this.remove(v);
    return v;
  }

  remove(v: number): void {
    const at = this.where[v];
    if (at < 0) return;
    this.where[v] = -1;
    const last = this.heap[--this.length];
    if (last === v) return;
    this.heap[at] = last;
    this.where[last] = at;
    this.up(at);
    this.down(this.where[last]);
  }

  private less(a: number, b: number): boolean {
    if (this.cells[a] !== this.cells[b]) return this.cells[a] < this.cells[b];
    if (this.work[a] !== this.work[b]) return this.work[a] < this.work[b];
    return a < b;
  }

  private up(start: number): void {
    let at = start;
    const v = this.heap[at];
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.less(v, this.heap[parent])) break;
      this.heap[at] = this.heap[parent];
      this.where[this.heap[at]] = at;
      at = parent;
    }
    this.heap[at] = v;
    this.where[v] = at;
  }

  private down(start: number): void {
    let at = start;
    const v = this.heap[at];
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.length) break;
      if (child + 1 < this.length && this.less(this.heap[child + 1], this.heap[child])) child++;
      if (!this.less(this.heap[child], v)) break;
      this.heap[at] = this.heap[child];
      this.where[this.heap[at]] = at;
      at = child;
    }
    this.heap[at] = v;
    this.where[v] = at;
  }
}
