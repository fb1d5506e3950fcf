/**
 * Captured graphs by what they take for granted: inputs that a graph covers reuse it, others make a
 * new one.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { brokenGuard } from '../record/guards.ts';
import { DimSpec, TensorSpec } from '../record/spec.ts';
import { leavesOf, mapTree, type Tree, valueOfTree } from '../record/tree.ts';
import {
  type Capture,
  captureAny,
  type InputTree,
  inputTreeOf,
  type OutputTree,
  type TraceOptions,
} from '../trace.ts';

/** Which sizes of a cached capture may vary. */
export interface GraphCacheOptions extends TraceOptions {
  /**
   * `auto`: sizes are fixed at first, and a size that changed is a dim in the next graph; 0 and 1
   * always stay fixed. `false`: every size stays fixed. Default `auto`.
   */
  readonly dynamic?: 'auto' | false;
  /** Dims that may vary from the first call on: `{ x: [0] }` for dim 0 of input x. */
  readonly marked?: Readonly<Record<string, readonly number[]>>;
  /** A second graph is an error. Default false. */
  readonly errorOnRecompile?: boolean;
  /** Most graphs that are kept. Default 8. */
  readonly recompileLimit?: number;
}

/** The capture that `get` found or made. */
export interface CachedCapture extends Capture {
  /** False where an earlier graph covers the inputs. */
  readonly made: boolean;
  /** Why it was made: the guard of the newest graph that failed. */
  readonly failed?: string;
}

/** A size that inputs had, by place: `dim 0 of x`. */
interface Place {
  readonly sizes: number[];
}

/** The graphs of one function. */
export class GraphCache {
  /** Most recently used first. */
  private readonly entries: Capture[] = [];
  private newest: Capture | undefined;
  private readonly places = new Map<string, Place>();
  private readonly lines: string[] = [];

  /** @param fn as for `trace`; nothing is traced before the first `get` */
  constructor(
    private readonly fn: (...args: never[]) => OutputTree,
    private readonly options: GraphCacheOptions = {},
  ) {}

  /** Number of graphs. */
  get size(): number {
    return this.entries.length;
  }

  /** One line for every graph after the first: `recompile 2: dim 0 of x, 8 -> 16`. */
  get log(): readonly string[] {
    return this.lines;
  }

  /**
   * The graph that covers inputs of these concrete sizes; made if there is none.
   *
   * @throws E_RECOMPILE (`errorOnRecompile`) and E_RECOMPILE_LIMIT naming the guard that failed;
   *   what `trace` throws
   */
  get(inputs: InputTree): CachedCapture {
    const tree = inputTreeOf(inputs);
    this.see(tree);
    let failed: string | undefined;
    for (const [i, entry] of this.entries.entries()) {
      const broken = brokenGuard(entry.guards, tree);
      if (broken === undefined) {
        this.entries.splice(i, 1);
        this.entries.unshift(entry);
        return { ...entry, made: false };
      }
      if (entry === this.newest) failed = broken;
    }
    if (failed !== undefined) this.allow(failed);
    const made = this.make(inputs, tree, failed);
    this.entries.unshift(made);
    this.newest = made;
    return { ...made, made: true, ...defined({ failed }) };
  }

  private allow(failed: string): void {
    const { errorOnRecompile = false, recompileLimit = 8 } = this.options;
    if (errorOnRecompile)
      throw new ShardwrightError('E_RECOMPILE', `the inputs need another graph: ${failed}`, {
        hint: 'mark the dim as dynamic, or drop errorOnRecompile.',
      });
    if (this.entries.length >= recompileLimit)
      throw new ShardwrightError(
        'E_RECOMPILE_LIMIT',
        `the inputs need graph ${this.entries.length + 1}, the limit is ${recompileLimit}: ` +
          `${failed}`,
        {
          hint: 'mark what changes as a dim, make it a tensor, or raise recompileLimit.',
        },
      );
  }

  private make(inputs: InputTree, tree: Tree<TensorSpec>, failed: string | undefined): Capture {
    const number = this.entries.length + 1;
    const call = this.fn as unknown as (...args: unknown[]) => unknown;
    const names = this.dimNames(tree);
    const note = (line: string): void => void this.lines.push(line);
    if (names.size === 0) {
      const made = captureAny(call, inputs, this.options);
      if (failed !== undefined) note(`recompile ${number}: ${failed}`);
      return made;
    }
    const generalised = valueOfTree(mapTree(tree, (leaf, path) => withDims(leaf, path, names)));
    try {
      const made = captureAny(call, generalised, this.options);
      if (failed !== undefined) note(`recompile ${number}: ${failed}`);
      return made;
    } catch (error) {
      // The program holds only for some sizes: then each has its own graph, and the log says so.
      if (!(error instanceof ShardwrightError) || error.code !== 'E_SHAPE') throw error;
      const made = captureAny(call, inputs, this.options);
      note(`recompile ${number}: ${failed ?? 'marked dims'}; sizes stay fixed: ${error.message}`);
      return made;
    }
  }

  private see(tree: Tree<TensorSpec>): void {
    for (const { path, leaf } of leavesOf(tree))
      leaf.shape.forEach((size, d) => {
        if (size instanceof DimSpec)
          throw new ShardwrightError('E_TRACE_INPUT', `dim ${d} of ${path} has no fixed size`, {
            hint: 'a cache is asked with concrete sizes; use { marked } to say which may vary.',
          });
        const key = `${path} ${d}`;
        const place = this.places.get(key) ?? { sizes: [] };
        if (!place.sizes.includes(size)) place.sizes.push(size);
        this.places.set(key, place);
      });
  }

  /**
   * Which sizes become dims, by place. Places that always had the same sizes share a dim: nothing
   * told them apart so far, and programs usually need them equal.
   */
  private dimNames(tree: Tree<TensorSpec>): Map<string, string> {
    const { dynamic = 'auto', marked = {} } = this.options;
    const names = new Map<string, string>();
    const byHistory = new Map<string, string>();
    for (const { path, leaf } of leavesOf(tree))
      leaf.shape.forEach((size, d) => {
        if (typeof size !== 'number' || size < 2) return;
        const { sizes } = this.places.get(`${path} ${d}`) ?? { sizes: [] };
        const wanted = Object.hasOwn(marked, path) && marked[path].includes(d);
        const varied = dynamic === 'auto' && sizes.length > 1;
        if (!wanted && !varied) return;
        const history = sizes.join(',');
        const name = byHistory.get(history) ?? `s${byHistory.size}`;
        byHistory.set(history, name);
        names.set(`${path} ${d}`, name);
      });
    return names;
  }
}

/** The description with the named places as dims. */
function withDims(leaf: TensorSpec, path: string, names: ReadonlyMap<string, string>): TensorSpec {
  const shape = leaf.shape.map((size, d) => {
    const name = names.get(`${path} ${d}`);
    if (name === undefined || typeof size !== 'number') return size;
    return new DimSpec({
      name,
      min: 2,
      max: Infinity,
      multiple: 1,
      example: size,
      unbacked: false,
    });
  });
  return new TensorSpec(shape, leaf.dtype, leaf.role, leaf.grad);
}
