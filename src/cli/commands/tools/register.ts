/**
 * Registers `einshard`, `einsum`, `solve`, `draw`, `layout`, `redistribute`, `rules` and their flags with the command
 * line.
 */

import type { Command } from 'commander';
import { collect, FLAG } from '../flags/flags.ts';
import type { CliSession } from '../flags/session.ts';

// Commands and their flags: the parts of the planner by themselves. Each loads its code when it runs.

export function registerEinshard(program: Command, session: CliSession): void {
  program
    .command('einshard [expression]')
    .summary('what an einshard expression means: mesh, placements, blocks')
    .description(
      "Reads the einshard notation and prints who holds what.\n\nExample:\n  $ shardwright einshard 'a b -> 2 a2* b*' --shape 4,8 --devices 16 --draw",
    )
    .option('--shape <sizes>', 'global shape of the tensor, such as 4,8')
    .option('--devices <n>', 'number of devices')
    .option('--draw', 'also draw the devices of every block')
    .option('--program <file>', 'JSON file with devices, tensors and einsum steps: their placements and collectives')
    .option(...FLAG.json)
    .action(async (expression: string | undefined, options) => {
      const { einshardCommand } = await import('./einshard.ts');
      session.exit = einshardCommand(expression, options as Parameters<typeof einshardCommand>[1], session.io);
    });
}

export function registerEinsum(program: Command, session: CliSession): void {
  program
    .command('einsum <equation>')
    .summary('letters of an einsum, its sharding, what its gradients owe')
    .description(
      "Sorts the letters of an einsum into batch, free and contraction, says where the result is for operands that are cut, and which reductions each gradient owes. Operands are x, y, z (or 0, 1, 2 and on); one that is not named is R, equal on all devices. States are S(b) or S(1) for a cut, R, I (equal and computed once) and P (addends), one for each mesh dim.\n\nExamples:\n  $ shardwright einsum 'abi,aoi->abo' --shard 'x=S(b)' --axis tp=8\n  $ shardwright einsum 'bh,ho->bo' --shard 'x=S(b)R' --shard 'y=IS(o)' --axis dp=2,tp=4 --mode strict",
    )
    .option('--shard <operand=states>', 'where an operand is, such as x=S(b); repeatable', collect, [])
    .option('--axis <dims>', 'mesh dims, outermost first, such as tp=8; repeatable', collect, [])
    .option('--mode <mode>', 'auto casts, slices and moves operands and says so; strict refuses each of that', 'auto')
    .option(...FLAG.json)
    .action(async (equation: string, options) => {
      const { einsumCommand } = await import('./einsum.ts');
      session.exit = einsumCommand(equation, options as Parameters<typeof einsumCommand>[1], session.io);
    });
}

export function registerSolve(program: Command, session: CliSession): void {
  program
    .command('solve <problem>')
    .summary('the cheapest choice of an IOPDDL problem, with bound and certificate')
    .description(
      'Solves a choice problem with usage over time (google/iopddl; JSON or gzipped JSON; `-` reads stdin).\n\nExample:\n  $ shardwright solve problem.json.gz --time-limit 60',
    )
    .option(...FLAG.timeLimit)
    .option('--gap <fraction>', 'relative gap that is good enough; above it the exit code is 4', '0')
    .option('--seed <n>', 'seed of the search', '0')
    .option('--threads <n>', 'worker threads; the answer to a number of rounds does not depend on it', '2')
    .option(
      '--lanes <n>',
      'lines of search side by side; more of them use more threads, and change the answer (default 2)',
    )
    .option('--rounds <n>', 'stop after so many rounds of search: a limit that gives the same answer on every machine')
    .option('--certificate <file>', 'write the certificate of the bound')
    .option('--check <file>', 'replay a certificate instead of solving: what it proves; exit 5 where it proves nothing')
    .option(...FLAG.json)
    .option(...FLAG.quiet)
    .action(async (path: string, options) => {
      const { solveCommand } = await import('./solve.ts');
      session.exit = await solveCommand(
        path,
        options as Parameters<typeof solveCommand>[1],
        session.io,
        session.control,
      );
    });
}

export function registerDraw(program: Command, session: CliSession): void {
  program
    .command('draw')
    .summary('a tensor, a layout or a placement as a matrix of matrices')
    .description(
      "Draws a tensor of any rank as a matrix of matrices: its values, the offsets of a layout, or the devices of a placement with lines at shard borders.\n\nExamples:\n  $ shardwright draw --shape 2,2,2,2 --cut 0,1\n  $ shardwright draw --layout '((2,2),2):((2,4),1)' --order lex\n  $ shardwright draw --shape 4,4 --mesh dp=2,tp=2 --placement 'S(0)S(1)' --svg picture.svg",
    )
    .option('--shape <sizes>', 'sizes of the dims, outermost first, such as 2,2,2,2 (default: the modes of the layout)')
    .option('--cut <dims>', 'dims to cut everywhere, or before one slice: 0,1@2')
    .option('--layout <layout>', 'show the offsets of a layout, such as (4,2):(2,1); needs --order')
    .option('--order <order>', 'which coordinate is the fastest: lex (the last) or colex (the first)')
    .option('--placement <spec>', 'show who holds each element: S(0)R, P("tp", None), or einshard text')
    .option('--mesh <dims>', 'mesh of the placement, outermost dim first, such as dp=2,tp=2')
    .option('--devices <n>', 'number of devices, for einshard text without --mesh')
    .option('--no-borders', 'draw no lines at shard borders')
    .option('--svg <file>', 'also write the drawing as SVG')
    .option(...FLAG.json)
    .action(async (options) => {
      const { drawCommand } = await import('./draw.ts');
      session.exit = drawCommand(options as Parameters<typeof drawCommand>[0], session.io);
    });
}

export function registerLayout(program: Command, session: CliSession): void {
  program
    .command('layout <expression>')
    .summary('layout algebra: coalesce, compose, complement, divide, product, inverse')
    .description(
      "Evaluates one function of the layout algebra (CuTe) and prints the resulting layout.\n\nFunctions: show, flatten, coalesce, coalesce_modes, compose, complement, right_inverse, left_inverse; in colex order also logical_divide, zipped_divide, tiled_divide, flat_divide, logical_product, zipped_product, tiled_product, flat_product, blocked_product, raked_product.\n\nArguments: layouts SHAPE:STRIDE, compact in the order without strides; complement takes a bound second. The second argument of compose, divides and products may go by mode: <3:4,8:2>, _ for a mode left alone, or a bare shape (3,8), whose sizes have stride 1.\n\nExamples:\n  $ shardwright layout 'compose (6,2):(8,2) (4,3):(3,1)' --order colex\n  $ shardwright layout 'zipped_divide (4,4):(1,4) <2:1,2:2>' --order colex --json",
    )
    .option('--order <order>', 'which coordinate is the fastest: lex (the last) or colex (the first); no default')
    .option(...FLAG.json)
    .action(async (expression: string, options) => {
      const { layoutCommand } = await import('./layout.ts');
      session.exit = layoutCommand(expression, options as Parameters<typeof layoutCommand>[1], session.io);
    });
}

export function registerRedistribute(program: Command, session: CliSession): void {
  program
    .command('redistribute <from> <to>')
    .summary('the cheapest way from one placement of a tensor to another')
    .description(
      "Plans how a tensor gets from one placement to another, with its collectives, their bytes and seconds.\n\nExample:\n  $ shardwright redistribute 'S(0)S(1)' 'S(1)S(0)' --mesh dp=2,tp=2 --shape 4096,4096 --dtype bf16",
    )
    .requiredOption('--mesh <dims>', 'mesh dims, outermost first, such as dp=2,tp=2')
    .requiredOption('--shape <sizes>', 'global shape of the tensor, such as 8,8')
    .option('--dtype <name>', 'element type, such as f32 or bf16', 'f32')
    .option(...FLAG.cost)
    .option(...FLAG.cluster, 'dgx-h100')
    .option(...FLAG.collectives)
    .option('--no-merge', 'one mesh dim at a time, as DTensor does')
    .option(...FLAG.json)
    .action(async (from: string, to: string, options) => {
      const { redistributeCommand } = await import('./redistribute.ts');
      session.exit = redistributeCommand(from, to, options as Parameters<typeof redistributeCommand>[2], session.io);
    });
}

export function registerRules(program: Command, session: CliSession): void {
  program
    .command('rules')
    .summary('the sharding rules of operators, tried by execution')
    .description(
      'Lists the sharding rules of operators at their sample calls; with --check runs them on simulated ranks, by brute force over every placement of inputs and results, and lists the rules that are wrong and the ones that are missing.\n\nExamples:\n  $ shardwright rules --op mm\n  $ shardwright rules --op aten.softmax.int --check\n  $ shardwright rules --ops my-operators.ts --check',
    )
    .option('--op <name>', 'one operator, such as mm or aten.sum.dim_IntList; default all')
    .option('--ops <file>', 'operators and rules of your own, alone without --op; repeatable', collect, [])
    .option('--check', 'run the rules and search for missing ones')
    .option('--ranks <list>', 'numbers of simulated ranks (default: 2,3)')
    .option('--budget <n>', 'combinations tried for one call before it is left out (default: 50000)')
    .option(...FLAG.json)
    .action(async (options) => {
      const { rulesCommand } = await import('../catalogue/rules.ts');
      session.exit = await rulesCommand(options as Parameters<typeof rulesCommand>[0], session.io);
    });
}
