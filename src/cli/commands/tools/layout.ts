/** `layout`: takes a layout expression and prints its algebra. */

import { ShardwrightError, suggestion } from '../../../errors.ts';
import { coalesce, coalesceModes } from '../../../notations/layout/coalesce.ts';
import { complement } from '../../../notations/layout/complement.ts';
import { composition } from '../../../notations/layout/composition.ts';
import { offsets } from '../../../notations/layout/coordinates.ts';
import {
  flatDivide,
  logicalDivide,
  tiledDivide,
  zippedDivide,
} from '../../../notations/layout/divide.ts';
import type { Order } from '../../../notations/layout/int-tree.ts';
import { leftInverse, rightInverse } from '../../../notations/layout/inverse.ts';
import { flatten, type Layout } from '../../../notations/layout/layout.ts';
import { LayoutScanner } from '../../../notations/layout/parse.ts';
import {
  blockedProduct,
  flatProduct,
  logicalProduct,
  rakedProduct,
  tiledProduct,
  zippedProduct,
} from '../../../notations/layout/product.ts';
import type { Tiler } from '../../../notations/layout/tiler.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import type { LayoutOptions } from './flags.ts';

type Run = (scan: LayoutScanner, order: Order) => Layout;

const one =
  (f: (a: Layout, order: Order) => Layout): Run =>
  (scan, order) =>
    f(scan.layout(order), order);

const tiled =
  (f: (a: Layout, b: Tiler, order: Order) => Layout): Run =>
  (scan, order) =>
    f(scan.layout(order), scan.tiler(), order);

/** Functions that exist in one order only say so before they read their arguments. */
const colex =
  (f: (scan: LayoutScanner) => Layout): Run =>
  (scan, order) => {
    if (order !== 'colex')
      throw new ShardwrightError('E_USAGE', 'divides and products exist in colex order only', {
        hint: 'use --order colex',
      });
    return f(scan);
  };

/** The help text in program.ts lists these names. */
const OPERATIONS: ReadonlyMap<string, Run> = new Map<string, Run>([
  ['show', one((a) => a)],
  ['flatten', one((a) => flatten(a))],
  ['coalesce', one(coalesce)],
  ['coalesce_modes', one(coalesceModes)],
  ['compose', tiled(composition)],
  ['complement', (scan, order) => complement(scan.layout(order), scan.integer(), order)],
  ['right_inverse', one(rightInverse)],
  ['left_inverse', one(leftInverse)],
  ['logical_divide', colex((scan) => logicalDivide(scan.layout('colex'), scan.tiler()))],
  ['zipped_divide', colex((scan) => zippedDivide(scan.layout('colex'), scan.tiler()))],
  ['tiled_divide', colex((scan) => tiledDivide(scan.layout('colex'), scan.tiler()))],
  ['flat_divide', colex((scan) => flatDivide(scan.layout('colex'), scan.tiler()))],
  ['logical_product', colex((scan) => logicalProduct(scan.layout('colex'), scan.tiler()))],
  ['zipped_product', colex((scan) => zippedProduct(scan.layout('colex'), scan.tiler()))],
  ['tiled_product', colex((scan) => tiledProduct(scan.layout('colex'), scan.tiler()))],
  ['flat_product', colex((scan) => flatProduct(scan.layout('colex'), scan.tiler()))],
  ['blocked_product', colex((scan) => blockedProduct(scan.layout('colex'), scan.layout('colex')))],
  ['raked_product', colex((scan) => rakedProduct(scan.layout('colex'), scan.layout('colex')))],
]);

/** Other names of the same functions. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ['composition', 'compose'],
  ['divide', 'logical_divide'],
  ['product', 'logical_product'],
]);

/** The record that `layout --json` prints; its keys are a contract. */
interface LayoutAnswer {
  readonly result: string;
  readonly size: number;
  readonly cosize: number;
  /** Offsets of the indices 0, 1, 2 ... */
  readonly offsets: readonly number[];
}

export function layoutCommand(expression: string, options: LayoutOptions, io: CliIo): number {
  const result = evaluate(expression, stated(options.order));
  if (options.json === true) {
    const { text, size, cosize } = result.layout;
    const answer: LayoutAnswer = {
      result: text,
      size,
      cosize,
      offsets: offsets(result.layout, result.order),
    };
    io.stdout(`${JSON.stringify(answer)}\n`);
  } else io.stdout(`${result.layout.text}\n`);
  return EXIT.ok;
}

function stated(order: Order | undefined): Order {
  if (order !== undefined) return order;
  throw new ShardwrightError('E_USAGE', 'the order is missing: --order lex or --order colex', {
    hint:
      'colex: the first coordinate is the fastest (CuTe); lex: the last is (PyTorch, device ' +
      'meshes)',
  });
}

function evaluate(expression: string, order: Order): { layout: Layout; order: Order } {
  const scan = new LayoutScanner(expression);
  const { column } = scan;
  const word = scan.word('an operation');
  const name = word.toLowerCase().replaceAll('-', '_');
  const run = OPERATIONS.get(ALIASES.get(name) ?? name);
  if (run === undefined)
    throw new ShardwrightError('E_SYNTAX', `unknown operation '${word}' at column ${column}`, {
      hint: suggestion(name, [...OPERATIONS.keys()], 'operations'),
      position: { line: 1, column },
      excerpt: expression,
    });
  // Arguments are read one by one inside the operation, so whatever is left over shows only after
  // it.
  const layout = run(scan, order);
  scan.end();
  return { layout, order };
}
