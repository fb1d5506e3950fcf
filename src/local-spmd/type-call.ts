/** Types one call on one mesh axis, for tests and tools. */
import { checkKinds } from '../arguments.ts';
import { internalError, ShardwrightError } from '../errors.ts';
import type { ValueType } from '../graph/types.ts';
import { tensorInputs } from '../ops/record/context.ts';
import { bind, type CallNode } from '../ops/record/infer.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { type Meaning, type OperandType, typeOperator } from './operator-types.ts';

/**
 * Types of the results of a call.
 *
 * @param typeOf dtype and shape of a named operand: of one device's piece in `manual`, of the whole
 *   value in `strict`
 * @param spmd type of a named operand on the axis; `number` for a tensor of plain numbers
 * @param ranks of the axis, into which cuts must divide as the operator asks
 * @throws E_SPMD_TYPE with both types and the cast to insert; E_UNKNOWN_OP
 */
export function typeCall(
  table: OperatorTable,
  call: CallNode,
  typeOf: (name: string) => ValueType,
  spmd: (name: string) => OperandType,
  meaning: Meaning,
  ranks = 2,
): readonly OperandType[] {
  checkKinds('typeCall', {
    table: [table, 'operators'],
    call: [call, ['target', 'args', 'kwargs']],
    typeOf: [typeOf, 'function'],
    spmd: [spmd, 'function'],
    meaning: [meaning, 'string'],
    ranks: [ranks, 'number', 'undefined'],
  });
  const record = table.get(call.target);
  const ctx = bind(table, call, typeOf);
  if (record === undefined || ctx === undefined)
    throw new ShardwrightError('E_UNKNOWN_OP', `there is no operator '${call.target}'`);
  const names = tensorInputs(record, call.args, call.kwargs);
  const [found] = typeOperator(record, ctx, [{ size: ranks, meaning }], [names.map(spmd)]);
  if ('typing' in found) return found.typing.results;
  const { rule, reason, operands, casts, fix } = found.conflict;
  const shown = operands.map((i) => `operand ${i} (%${names[i] ?? ''}) is ${spmd(names[i] ?? '')}`);
  if (shown.length === 0) throw internalError(`${call.target}: a conflict without operands`);
  throw new ShardwrightError(
    'E_SPMD_TYPE',
    `${record.name}: ${rule}: ${shown.join(', ')}: ${reason}`,
    {
      hint:
        fix ??
        'insert ' +
          casts.map((c) => `${c.op}(${names[c.operand] ?? ''}, ${c.src}→${c.dst})`).join(' and '),
    },
  );
}
