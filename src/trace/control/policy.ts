/** Chooses what happens to control flow that depends on tensors: guards, operators or regions. */

import { ShardwrightError, suggestion } from '../../errors.ts';
import { refusal } from '../errors/refusal.ts';
import type { ControlDecision, ControlFlow, ControlSite } from '../record/control-interface.ts';
import { needRecorder, stopping, type Trace } from '../record/recorder.ts';
import { valueText } from '../record/typed-value.ts';
import { condAny } from './cond.ts';
import { whileAny } from './loops.ts';
import { valueOf } from './traced-values.ts';

/**
 * The treatment of control flow that the source-level front end meets. `guards`: host values and
 * sizes decide while tracing. `operators`: conditions on tensors become `cond` and `while_loop`.
 * `predicate`: as operators, then selection. `auto`: guards for host values, operators for tensors
 * where the source was rewritten, else an error that lists the ways out. `regions`, `opaque` and
 * `cfg` have calls of their own: `captureRegions`, `customOp`, `structure`.
 */
export type Policy = 'auto' | 'guards' | 'operators' | 'predicate';

/** Who records control flow under a policy. */
export function controlOf(policy: Policy): ControlFlow {
  const host = (site: ControlSite): void => noteHost(site);
  if (policy === 'guards') return { host, condition: dataDependent };
  const label = policy === 'predicate' ? 'predicate' : 'operators';
  const decide = (site: ControlSite, reason: string): void => relabel(site, label, reason);
  return {
    host,
    condition: dataDependent,
    cond: (pred, onTrue, onFalse, site) => {
      const reason = `a tensor decides: ${shown(pred)}`;
      const result = condAny(pred, { onTrue, onFalse }, [], { position: site.position, reason });
      decide(site, reason);
      return result;
    },
    whileLoop: (test, body, variables, site) => {
      const before = variables.read();
      try {
        const after = whileAny(
          (carry) => {
            variables.write(carry as readonly unknown[]);
            return test();
          },
          (carry) => {
            variables.write(carry as readonly unknown[]);
            body();
            return variables.read();
          },
          before,
          {},
          site.position,
        );
        decide(site, `a tensor decides; the carry is ${variables.names.join(', ')}`);
        variables.write(after as readonly unknown[]);
      } catch (error) {
        variables.write(before);
        throw error;
      }
    },
  };
}

/**
 * The policy that options ask for; `controlFlow: 'capture'` alone is `auto`.
 *
 * @throws E_USAGE for a name that is not a policy, or one that has a call of its own
 */
export function policyOf(options: {
  readonly policy?: Policy | undefined;
  readonly controlFlow?: 'check' | 'capture' | undefined;
}): Policy | undefined {
  const { policy, controlFlow } = options as Readonly<Record<string, string | undefined>>;
  if (controlFlow !== undefined && controlFlow !== 'check' && controlFlow !== 'capture')
    throw new ShardwrightError(
      'E_USAGE',
      `controlFlow '${controlFlow}' is neither 'check' nor 'capture'`,
    );
  if (policy === undefined) return controlFlow === 'capture' ? 'auto' : undefined;
  const known = POLICIES.find((name) => name === policy);
  if (known !== undefined) return known;
  const call = CALLS.get(policy);
  throw new ShardwrightError(
    'E_USAGE',
    call === undefined
      ? `there is no policy '${policy}'`
      : `policy '${policy}' makes more than one graph or node`,
    {
      hint:
        call === undefined ? suggestion(policy, [...POLICIES, ...CALLS.keys()], 'policies') : call,
    },
  );
}

const POLICIES: readonly Policy[] = ['auto', 'guards', 'operators', 'predicate'];
const CALLS: ReadonlyMap<string, string> = new Map([
  ['regions', 'call captureRegions(fn, inputs): it gives one graph for each region.'],
  ['opaque', 'call customOp({ name, schema, type }) for the part that is to be hidden.'],
  ['cfg', 'call captureCfg(...) for the blocks, and structure(cfg) to make operators of them.'],
]);

const WAYS =
  'six ways out: guards (make it a host value or a size), operators (cond, whileLoop, or the ' +
  'rewriting front end), predicate (where), regions (captureRegions), opaque (customOp), cfg ' +
  '(structure).';

/** @throws E_DATA_DEPENDENT always */
function dataDependent(value: unknown, site: ControlSite): never {
  throw stopping(
    refusal(
      'E_DATA_DEPENDENT',
      `Data-dependent branching: ${shown(value)} decides in '${site.kind}'`,
      { source: site.position },
      {
        hint: WAYS,
      },
    ),
  );
}

function shown(value: unknown): string {
  const traced = valueOf(value, 'the condition');
  return `%${traced.name}: ${valueText(traced)}`;
}

/** A host value decides: noted once for each place. */
function noteHost({ kind, position }: ControlSite): void {
  const { sites } = needRecorder('a condition').trace;
  if (sites.some((site) => site.kind === kind && site.position === position)) return;
  sites.push({ kind, position, policy: 'guards', reason: 'a host value decides while tracing' });
}

/** The operator that was just recorded is this site of the program. */
function relabel(
  { kind, position }: ControlSite,
  policy: ControlDecision['policy'],
  reason: string,
): void {
  const { sites } = needRecorder('a condition').trace;
  // Operators inside the bodies were noted before the one that holds them.
  sites.splice(sites.length - 1, 1, { kind, position, policy, reason });
}

/**
 * The control flow that was met and its treatment: conditions and operators, then comparisons of
 * sizes.
 */
export function controlSites(trace: Trace): ControlDecision[] {
  const sizes = trace.dims.guards.map(({ text, source, specialised }): ControlDecision => {
    const reason = specialised ? `a size is used as a number: ${text}` : `a size decides: ${text}`;
    return { kind: 'size', position: source ?? 'an unknown place', policy: 'guards', reason };
  });
  return [...trace.sites, ...sizes];
}
