/**
 * Reads a `.pt2` archive or the JSON of an exported program into a graph, without opening weights
 * or pickles.
 */

import { defined, nonEmpty } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph, NodeMeta, Output } from '../../graph/types.ts';
import { setOwn } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { decodeUtf8 } from '../../utf8.ts';
import type { Infer } from '../complete/infer.ts';
import { isJsonObject, type JsonObject, type JsonValue, readJson } from '../file/json.ts';
import { GraphMaker, type Places, type Signature } from '../fx/graph.ts';
import type { FxClass } from '../fx/record.ts';
import { withoutUnused } from '../fx/signature.ts';
import { ProgramReader } from './body.ts';
import { integerAt, listAt, objectAt, onlyKey, Place, stringAt } from './place.ts';
import { nameAt } from './values.ts';
import { zipDirectory, type ZipLimits, zipMember } from './zip.ts';

const SCHEMA_MAJOR = 8;

interface Pt2Options extends ZipLimits {
  readonly name?: string;
  readonly infer?: Infer;
}

/**
 * Reads a `.pt2` archive of torch.export. Weights and pickles in it are never opened: the graph and
 * the table of weights are all that planning needs.
 *
 * @throws E_ARCHIVE, E_LIMIT, and what `importExportedProgram` throws
 */
export function importArchive(bytes: Uint8Array, options: Pt2Options = {}): Graph {
  const members = zipDirectory(bytes, options);
  const names = [...members.keys()];
  const models = names.filter((name) => /(^|\/)models\/[^/]+\.json$/.test(name));
  const old = names.filter((name) => /(^|\/)serialized_exported_program\.json$/.test(name));
  const found = models.length > 0 ? models : old;
  if (found.length !== 1)
    throw new ShardwrightError(
      'E_ARCHIVE',
      found.length === 0
        ? 'the archive holds no models/NAME.json'
        : `the archive holds ${found.length} models: ${found.slice(0, 5).join(', ')}`,
      {
        hint:
          'a .pt2 file of torch.export.save holds one; take the model.json out and import it ' +
          'alone',
      },
    );
  const path = itemAt(found, 0);
  const member = members.get(path)!;
  const model = /([^/]+)\.json$/.exec(path)![1];
  const config = names.find((name) => name.endsWith(`data/weights/${model}_weights_config.json`));
  const shared =
    config === undefined
      ? []
      : sharedWeights(zipMember(bytes, members.get(config)!, options), config);
  try {
    return importExportedProgram(decodeUtf8(zipMember(bytes, member, options)), options, shared);
  } catch (error) {
    if (error instanceof ShardwrightError && error.details.file === undefined)
      throw new ShardwrightError(error.code, `${found[0]}: ${error.message}`, error.details);
    throw error;
  }
}

/**
 * Reads the JSON of an exported program: `models/NAME.json` of an archive, or `model.json` alone.
 *
 * @param shared groups of parameter names that are one tensor, as the archive's table of weights
 *   tells
 * @throws E_SYNTAX, E_DUP (with line or JSON path), E_VERSION, E_REF, E_TYPE, E_UNSUPPORTED,
 *   E_LIMIT, E_UNKNOWN_OP
 */
export function importExportedProgram(
  text: string,
  options: Pt2Options = {},
  shared?: readonly (readonly string[])[],
): Graph {
  const root = new Place(undefined, '$');
  const program = objectAt(readJson(text), root);
  checkVersion(program, root);
  const moduleAt = root.at('graph_module');
  const module = objectAt(program.graph_module, moduleAt);
  const reader = new ProgramReader();
  const graph = reader.graph(module.graph, moduleAt.at('graph'), 'GraphModule');
  const stated = signature(module.signature, moduleAt.at('signature'), graph);
  const places: Places = {
    error: (code, message, at, hint, node) =>
      (reader.places[at] ?? root).error(code, message, hint, node),
  };
  const ties = tiesOf(stated, shared ?? []);
  const roles = withoutUnused(
    stated,
    graph,
    shared === undefined ? undefined : new Set(ties.flat()),
  );
  const made = new GraphMaker(places, options.infer).make(graph, options.name ?? graph.name, roles);
  const dims = ranges(program.range_constraints, root.at('range_constraints'));
  return { ...made, ...nonEmpty({ ties }), ...defined({ dims }) };
}

function checkVersion(program: JsonObject, root: Place): void {
  const at = root.at('schema_version');
  const version = objectAt(program.schema_version, at);
  const major = integerAt(version.major, at.at('major'));
  if (major !== SCHEMA_MAJOR)
    throw at.error(
      'E_VERSION',
      `the schema has version ${major}.${integerAt(version.minor, at.at('minor'))}, this ` +
        `reader knows ${SCHEMA_MAJOR}.x`,
      'export the model again with torch 2.7 or later, or use print_readable()',
    );
}

const INPUT_SPECS = [
  'user_input',
  'parameter',
  'buffer',
  'tensor_constant',
  'custom_obj',
  'token',
  'constant_input',
];
const OUTPUT_SPECS = [
  'user_output',
  'loss_output',
  'buffer_mutation',
  'parameter_mutation',
  'user_input_mutation',
  'gradient_to_parameter',
  'gradient_to_user_input',
  'token',
];

/** Roles as the signature states them. */
function signature(value: JsonValue | undefined, place: Place, graph: FxClass): Signature {
  const record = objectAt(value, place);
  const inputsAt = place.at('input_specs');
  const inputs = listAt(record.input_specs, inputsAt).map((spec, i) =>
    inputMeta(spec, inputsAt.at(i), graph, i),
  );
  const outputsAt = place.at('output_specs');
  let userOutputs = 0;
  const outputs = listAt(record.output_specs, outputsAt).map((spec, i) =>
    outputRole(spec, outputsAt.at(i), () => userOutputs++),
  );
  if (inputs.length !== graph.inputs.length || outputs.length !== graph.returns.length)
    throw place.error(
      'E_SYNTAX',
      `the signature lists ${inputs.length} inputs and ${outputs.length} outputs, the graph ` +
        `has ${graph.inputs.length} and ${graph.returns.length}`,
    );
  return { inputs, outputs, notes: [] };
}

function inputMeta(spec: JsonValue, place: Place, graph: FxClass, i: number): NodeMeta {
  const kind = onlyKey(spec, place, INPUT_SPECS);
  const at = place.at(kind);
  const entry = objectAt(objectAt(spec, place)[kind], at);
  const own = graph.inputs[i]?.name ?? '';
  const listed = isJsonObject(entry.arg) ? entry.arg.name : undefined;
  if (typeof listed === 'string' && listed !== own)
    throw at.error(
      'E_REF',
      `the signature names input ${i} '${listed.slice(0, 80)}', the graph '${own}'`,
    );
  switch (kind) {
    case 'parameter':
      return { role: 'parameter', roleName: nameAt(entry.parameter_name, at.at('parameter_name')) };
    case 'buffer':
      return { role: 'buffer', roleName: nameAt(entry.buffer_name, at.at('buffer_name')) };
    case 'tensor_constant':
      return {
        role: 'constant',
        roleName: nameAt(entry.tensor_constant_name, at.at('tensor_constant_name')),
      };
    case 'custom_obj':
      throw at.error('E_UNSUPPORTED', 'an input that is a custom object');
    default:
      return { role: 'input', roleName: own };
  }
}

function outputRole(spec: JsonValue, place: Place, next: () => number): Omit<Output, 'value'> {
  const kind = onlyKey(spec, place, OUTPUT_SPECS);
  const at = place.at(kind);
  const entry = objectAt(objectAt(spec, place)[kind], at);
  const of = (key: string): string => stringAt(entry[key], at.at(key));
  switch (kind) {
    case 'buffer_mutation':
      return { role: 'mutation', of: of('buffer_name') };
    case 'parameter_mutation':
      return { role: 'mutation', of: of('parameter_name') };
    case 'user_input_mutation':
      return { role: 'mutation', of: of('user_input_name') };
    case 'gradient_to_parameter':
      return { role: 'grad', of: of('parameter_name') };
    case 'gradient_to_user_input':
      return { role: 'grad', of: of('user_input_name') };
    default:
      return { role: 'output', index: next() };
  }
}

/** Parameters that share a weight, in the order of the inputs. */
function tiesOf(stated: Signature, shared: readonly (readonly string[])[]): string[][] {
  const parameters = stated.inputs.flatMap((meta) =>
    meta.role === 'parameter' ? [meta.roleName ?? ''] : [],
  );
  const position = new Map(parameters.map((name, i) => [name, i]));
  const at = (name: string): number => position.get(name) ?? 0;
  return shared
    .map((group) => group.filter((name) => position.has(name)).sort((a, b) => at(a) - at(b)))
    .filter((group) => group.length > 1)
    .sort(([a = ''], [b = '']) => at(a) - at(b));
}

/** Groups of names whose weights are one file of the archive. */
function sharedWeights(bytes: Uint8Array, member: string): string[][] {
  const root = new Place(undefined, '$');
  try {
    const config = objectAt(objectAt(readJson(decodeUtf8(bytes)), root).config, root.at('config'));
    const byFile = new Map<string, string[]>();
    for (const name of Object.keys(config)) {
      const at = root.at('config').at(name);
      const file = stringAt(objectAt(config[name], at).path_name, at.at('path_name'));
      const group = byFile.get(file);
      if (group === undefined) byFile.set(file, [name]);
      else group.push(name);
    }
    return [...byFile.values()].filter((group) => group.length > 1);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw new ShardwrightError(error.code, `${member}: ${error.message}`, error.details);
  }
}

/** Ranges of symbolic sizes; an absent or huge bound is infinite. */
function ranges(value: JsonValue | undefined, place: Place): Graph['dims'] {
  if (value === undefined) return undefined;
  const dims: Record<string, { min: number; max: number }> = {};
  const table = objectAt(value, place);
  for (const name of Object.keys(table)) {
    const at = place.at(name);
    const range = objectAt(table[name], at);
    const bound = (key: string, open: number): number => {
      const limit = range[key];
      if (limit === null || limit === undefined) return open;
      const number = integerAt(limit, at.at(key));
      return typeof number === 'bigint' ? open : number;
    };
    setOwn(dims, name, { min: bound('min_val', 0), max: bound('max_val', Infinity) });
  }
  return Object.keys(dims).length > 0 ? dims : undefined;
}
