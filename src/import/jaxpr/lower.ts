/** A parsed jaxpr as a graph in the StableHLO vocabulary. */

import { nonEmpty } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { lintGraph } from '../../graph/lint.ts';
import type { Graph, NodeMeta, Output, TensorType } from '../../graph/types.ts';
import type { Infer } from '../fx/graph.ts';
import { GraphOfJaxpr, type JaxprContext } from './builder.ts';
import { replacedInputs } from './donated.ts';
import { opaque } from './equation.ts';
import { higherOrder } from './primitives/higher-order.ts';
import { loweringOf } from './primitives/primitives.ts';
import { type JaxMesh, meshesOf, meshText } from './shardings.ts';
import type { JaxprParser } from './text/parse.ts';
import { isDroppedOutput, type Jaxpr } from './text/syntax.ts';

const MAX_NODES = 2_000_000;
const NONE: ReadonlyMap<number, string> = new Map();

export interface LowerOptions {
  readonly name?: string;
  readonly infer?: Infer;
  readonly ignoreShardings?: boolean;
}

/** @throws E_REF, E_DUP, E_TYPE, E_LIMIT with line and column; E_GRAPH_LINT */
export function lowerJaxpr(root: Jaxpr, parser: JaxprParser, options: LowerOptions): Graph {
  const meshes = meshesOf(root);
  const [mesh, ...otherMeshes] = meshes;
  const context = new Context(parser, options.infer, mesh);
  const { graph } = context.make(root, options.name ?? 'jaxpr', true);
  const notes = [
    ...(mesh !== undefined && otherMeshes.length > 0
      ? [`The text names ${meshes.length} meshes; shardings over ${meshText(mesh)} were read.`]
      : []),
    ...context.notes,
    ...(options.ignoreShardings === true ? [] : [...context.unread, ...unpinned(parser.axes)]),
  ];
  const keep = options.ignoreShardings !== true && mesh !== undefined;
  const { given, ...plain } = graph;
  const full: Graph = {
    ...plain,
    ...nonEmpty({ notes }),
    ...(keep ? { mesh: meshText(mesh) } : {}),
    ...(keep && given !== undefined ? { given } : {}),
  };
  lintGraph(full);
  return full;
}

/** Types in explicit mode (`AxisType.Explicit`) say over which axes tensors lie, without sizes. */
function unpinned(axes: ReadonlySet<string>): string[] {
  if (axes.size === 0) return [];
  return [
    `Types of the text lie over the mesh axes ${[...axes].sort().join(', ')}, without their ` +
      'sizes: they are not pinned. The StableHLO of the program, ' +
      'jax.jit(f).lower(...).as_text(), has its mesh, and what it states is pinned.',
  ];
}

interface Made {
  readonly graph: Graph;
  readonly size: number;
}

class Context implements JaxprContext {
  readonly maxNodes = MAX_NODES;
  readonly unread = new Set<string>();
  readonly notes = new Set<string>();
  private readonly made = new Map<Jaxpr, Map<string, Made>>();

  constructor(
    readonly parser: JaxprParser,
    readonly infer: Infer | undefined,
    readonly mesh: JaxMesh | undefined,
  ) {}

  body(jaxpr: Jaxpr, layout?: readonly (number | TensorType)[]): Made {
    const key =
      layout === undefined
        ? ''
        : layout.map((entry) => (typeof entry === 'number' ? entry : typeKey(entry))).join();
    let known = this.made.get(jaxpr);
    if (known === undefined) this.made.set(jaxpr, (known = new Map<string, Made>()));
    let made = known.get(key);
    if (made === undefined) known.set(key, (made = this.make(jaxpr, 'body', false, layout)));
    return made;
  }

  make(jaxpr: Jaxpr, name: string, root: boolean, layout?: readonly (number | TensorType)[]): Made {
    const b = new GraphOfJaxpr(this, name);
    const meta = (role: 'input' | 'constant', variable: string): NodeMeta =>
      root
        ? { role, roleName: variable, inferred: true }
        : { role: 'arg', roleIndex: b.inputs.length };
    if (root)
      for (const variable of jaxpr.constants) b.input(variable, meta('constant', variable.name));
    const order = layout ?? jaxpr.inputs.map((_, i) => i);
    for (const entry of order) {
      if (typeof entry !== 'number') {
        b.addInput('unread', entry, meta('input', 'unread'));
        continue;
      }
      const variable = jaxpr.inputs[entry];
      if (variable === undefined)
        throw internalError(`body input ${entry} of ${jaxpr.inputs.length}`);
      b.input(
        variable,
        meta('input', variable.name === '_' ? `_${b.inputs.length}` : variable.name),
      );
    }
    if (!root)
      for (const variable of jaxpr.constants) {
        // A constant that the body was closed over; its value is not in the text.
        const shape = [...variable.type.shape];
        const kwargs = {
          dtype: { kind: 'dtype', dtype: variable.type.dtype } as const,
          shape: shape.map(Number),
        };
        b.define(
          variable,
          b.helper(
            'stablehlo.constant',
            [`constant ${variable.name}`],
            kwargs,
            variable.type,
            variable.name,
          ).name,
        );
      }
    for (const equation of jaxpr.equations) {
      b.begin(equation);
      (higherOrder(equation.primitive) ?? loweringOf(equation.primitive) ?? opaque)(b, equation);
    }
    const graph: Graph = {
      name,
      nodes: [...b.inputs, ...b.nodes],
      outputs: outputsOf(b, jaxpr, root),
      subgraphs: b.subgraphs,
      ...nonEmpty({ given: b.given }),
    };
    return { graph, size: b.size + graph.nodes.length };
  }
}

/** The outputs of a program or a body; a jitted program says which inputs they replace. */
function outputsOf(b: GraphOfJaxpr, jaxpr: Jaxpr, root: boolean): Output[] {
  const returned = root ? jaxpr.outputs : jaxpr.outputs.filter((atom) => !isDroppedOutput(atom));
  const replaced = root ? replacedInputs(jaxpr) : NONE;
  return returned.map((atom, index): Output => {
    const value = b.value(atom).name;
    const of = replaced.get(index);
    return of === undefined ? { value, role: 'output', index } : { value, role: 'mutation', of };
  });
}

function typeKey(type: TensorType): string {
  const sizes = type.shape.map((size) => (typeof size === 'number' ? size : size.sym));
  return `${type.dtype}[${sizes.join('x')}]`;
}
