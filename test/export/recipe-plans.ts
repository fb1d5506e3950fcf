import type { ExportSource } from '../../src/backend/target.ts';
import type { Graph } from '../../src/graph/types.ts';
import { adamw } from '../../src/passes/training/optimizer.ts';
import { trainStep } from '../../src/passes/training/train-step.ts';
import { load, planFor } from '../plan/support.ts';
import { sourceOf } from './programs.ts';

/**
 * Plans of a two-layer Llama that are what recipes make: pinned parameter by parameter and product
 * by product.
 */
export const llama = (): Graph => load('torch/llama-tiny/joint.expanded');

/** A source, made once in a thread: tests only read it. */
const once = (make: () => Promise<ExportSource>): (() => Promise<ExportSource>) => {
  let made: Promise<ExportSource> | undefined;
  return () => (made ??= make());
};

const COLUMN = /(q|k|v|gate|up)_proj\.weight$/;
const ROW = /(o|down)_proj\.weight$/;

async function pinned(
  mesh: string,
  spec: (name: string) => string,
  product: (name: string) => string,
  rows: string,
  graph = llama(),
  looked = rows,
): Promise<ExportSource> {
  const names = new Map(graph.nodes.map((node) => [node.name, node]));
  const pins = graph.nodes.flatMap((node): { node: string; spec: string }[] => {
    const { role, roleName = '' } = node.meta;
    if (role === 'state')
      return node.type.kind === 'tensor' && node.type.shape.length > 0
        ? [{ node: node.name, spec: rows }]
        : [];
    if (role === 'parameter') return [{ node: node.name, spec: spec(roleName) }];
    if (node.kind === 'placeholder' && role === 'input') return [{ node: node.name, spec: rows }];
    if (node.target === 'aten.embedding.default') return [{ node: node.name, spec: looked }];
    const [, turned] = node.args;
    if (node.target !== 'aten.mm.default' || node.meta.phase === 'backward') return [];
    const view =
      turned !== null && typeof turned === 'object' && 'name' in turned
        ? names.get(turned.name)
        : undefined;
    const [from] = view?.target === 'aten.t.default' ? view.args : [];
    const weight =
      from !== undefined && from !== null && typeof from === 'object' && 'name' in from
        ? names.get(from.name)
        : undefined;
    return weight?.meta.role === 'parameter'
      ? [{ node: node.name, spec: product(weight.meta.roleName ?? '') }]
      : [];
  });
  return sourceOf(graph, await planFor(graph, mesh, { pins }));
}

/** Data parallel over dp, Megatron's columns and rows over tp. */
const megatronPlan = (graph: Graph): Promise<ExportSource> =>
  pinned(
    'dp=2,tp=2',
    (name) => (COLUMN.test(name) ? 'RS(0)' : ROW.test(name) ? 'RS(1)' : 'RR'),
    (name) => (COLUMN.test(name) ? 'S(0)S(1)' : ROW.test(name) ? 'S(0)P(sum)' : 'S(0)R'),
    'S(0)R',
    graph,
  );

const megatronLlama = once(() => megatronPlan(llama()));

/** Columns and rows of the Llama, or of another graph. */
export const megatronSource = (graph?: Graph): Promise<ExportSource> =>
  graph === undefined ? megatronLlama() : megatronPlan(graph);

/** The same, with both tables cut by the vocabulary. */
export const vocabularySource = once(() => {
  const isTable = (name: string): boolean => /(embed_tokens|lm_head)\.weight$/.test(name);
  return pinned(
    'dp=2,tp=2',
    (name) => (COLUMN.test(name) || isTable(name) ? 'RS(0)' : ROW.test(name) ? 'RS(1)' : 'RR'),
    (name) =>
      COLUMN.test(name) || isTable(name) ? 'S(0)S(1)' : ROW.test(name) ? 'S(0)P(sum)' : 'S(0)R',
    'S(0)R',
    llama(),
    'S(0)P(sum)',
  );
});

/** Both tables cut by the vocabulary over tp, and all layers whole. */
export const tablesSource = once(() => {
  const isTable = (name: string): boolean => /(embed_tokens|lm_head)\.weight$/.test(name);
  return pinned(
    'dp=2,tp=2',
    (name) => (isTable(name) ? 'RS(0)' : 'RR'),
    (name) => (isTable(name) ? 'S(0)S(1)' : 'S(0)R'),
    'S(0)R',
    llama(),
    'S(0)P(sum)',
  );
});

/** Feed-forward layers cut over more devices than there are heads of keys and values. */
export const wideSource = once(() => {
  const isWide = (name: string): boolean => /(gate|up)_proj\.weight$/.test(name);
  const isDown = (name: string): boolean => /down_proj\.weight$/.test(name);
  return pinned(
    'tp=4',
    (name) => (isWide(name) ? 'S(0)' : isDown(name) ? 'S(1)' : 'R'),
    (name) => (isWide(name) ? 'S(1)' : isDown(name) ? 'P(sum)' : 'R'),
    'R',
  );
});

/** Every parameter cut along its first dim, gathered where it is used. */
export const fsdpSource = once(() =>
  pinned(
    'dp=2',
    () => 'S(0)',
    () => 'S(0)',
    'S(0)',
  ),
);

/** Every parameter whole, its optimizer states cut along their first dim. */
export const zeroSource = once(() =>
  pinned(
    'dp=2',
    () => 'R',
    () => 'S(0)',
    'S(0)',
    trainStep(llama(), adamw({ lr: 1e-3 })),
  ),
);
