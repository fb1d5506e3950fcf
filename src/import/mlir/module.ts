/**
 * The module level of MLIR text: aliases, the module, its functions and meshes, in pretty and in
 * generic form.
 */

import { defined } from '../../defined.ts';
import { suggestion } from '../../errors.ts';
import { optionalDictionary, readAttribute, readDictionary } from './syntax/attributes.ts';
import { optionalLocation, readMlirLocation } from './syntax/location.ts';
import { OperationReader } from './syntax/operation.ts';
import { MlirReader } from './syntax/reader.ts';
import {
  type Attributes,
  type BlockArgument,
  type MlirAttribute,
  type MlirFunc,
  type MlirLocation,
  type MlirMesh,
  type MlirModule,
  type MlirType,
  NO_ATTRIBUTES,
  type Operation,
} from './syntax/syntax.ts';
import { readType } from './syntax/types.ts';

/** @throws E_SYNTAX, E_DUP, E_LIMIT, E_UNSUPPORTED, each with line and column */
export function parseModule(
  text: string,
  file?: string,
): { readonly module: MlirModule; readonly reader: MlirReader } {
  const reader = new MlirReader(text, file);
  return { module: new ModuleReader(reader).read(), reader };
}

class ModuleReader {
  private readonly ops: OperationReader;
  private readonly meshes = new Map<string, MlirMesh>();
  private readonly functions = new Map<string, MlirFunc>();
  private readonly attributeAliases = new Map<string, MlirAttribute>();
  private readonly locationAliases = new Map<string, MlirLocation>();
  private name: string | undefined;
  private attributes: Attributes = NO_ATTRIBUTES;

  constructor(private readonly reader: MlirReader) {
    this.ops = new OperationReader(reader);
  }

  read(): MlirModule {
    const { reader } = this;
    let seen = false;
    while (!reader.atEnd()) {
      if (reader.peek('{-#')) this.resources();
      else if (reader.peek('#')) this.alias();
      else if (reader.peek('!'))
        reader.fail(
          'a type alias',
          reader.pos,
          'E_UNSUPPORTED',
          'write the type out; StableHLO text needs no type aliases',
        );
      else if (reader.peekWord('module') || reader.peek('"builtin.module"')) {
        if (seen || this.functions.size > 0)
          reader.fail('a second module', reader.pos, 'E_UNSUPPORTED', 'import one module');
        seen = true;
        if (reader.peek('"')) this.genericModule();
        else this.prettyModule();
      } else if (seen) reader.expected('the end of the text');
      else this.member();
    }
    return {
      name: this.name,
      attributes: this.attributes,
      meshes: this.meshes,
      functions: this.functions,
      attributeAliases: this.attributeAliases,
      locationAliases: this.locationAliases,
    };
  }

  /** `#loc1 = loc(...)` or `#name = attribute`. */
  private alias(): void {
    const { reader } = this;
    const at = reader.pos;
    const name = reader.sigil('#', 'an alias');
    if (this.attributeAliases.has(name) || this.locationAliases.has(name))
      reader.fail(`'#${name}' is defined twice`, at, 'E_DUP', 'keep one of the definitions');
    reader.expect('=');
    if (reader.peekWord('loc')) this.locationAliases.set(name, readMlirLocation(reader));
    else this.attributeAliases.set(name, readAttribute(reader));
  }

  /** `{-# dialect_resources: {...} #-}`: bytes of constants, which planning does not need. */
  private resources(): void {
    const { reader } = this;
    const start = reader.pos;
    const end = reader.text.indexOf('#-}', start);
    if (end < 0)
      reader.fail(`'{-#' is never closed`, start, 'E_SYNTAX', 'the text seems to be cut');
    reader.pos = end + 3;
  }

  private prettyModule(): void {
    const { reader } = this;
    reader.expectWord('module');
    if (reader.peek('@')) this.name = reader.sigil('@', 'the name of the module');
    if (reader.acceptWord('attributes')) this.attributes = readDictionary(reader);
    reader.expect('{');
    while (!reader.accept('}')) {
      if (reader.atEnd()) reader.expected(`'}' at the end of the module`);
      this.member();
    }
    optionalLocation(reader);
  }

  private genericModule(): void {
    const operation = this.ops.operation();
    const name = operation.attributes.get('sym_name');
    if (name?.kind === 'string') this.name = name.value;
    this.attributes = operation.attributes;
    for (const member of operation.regions[0]?.operations ?? []) this.genericMember(member);
  }

  /** A function or a mesh. */
  private member(): void {
    const { reader } = this;
    reader.skip();
    const at = reader.pos;
    if (reader.peek('"')) {
      this.genericMember(this.ops.operation());
      return;
    }
    const word = reader.word(`a function ('func.func'), a mesh ('sdy.mesh') or '}'`);
    if (word === 'func.func' || word === 'func') this.addFunction(this.prettyFunction(at), at);
    else if (word === 'sdy.mesh') {
      const name = reader.sigil('@', 'the name of the mesh');
      reader.expect('=');
      this.addMesh(name, readMesh(reader), at);
      optionalDictionary(reader);
      optionalLocation(reader);
    } else
      reader.fail(
        `'${word}' at module level`,
        at,
        'E_UNSUPPORTED',
        suggestion(word, ['func.func', 'sdy.mesh', 'module'], 'members of a module'),
      );
  }

  private genericMember(operation: Operation): void {
    const { reader } = this;
    const name = operation.attributes.get('sym_name');
    if (name?.kind !== 'string')
      return reader.fail(
        `${operation.name} at module level has no sym_name`,
        operation.at,
        'E_UNSUPPORTED',
      );
    if (operation.name === 'func.func')
      this.addFunction(this.genericFunction(operation, name.value), operation.at);
    else if (operation.name === 'sdy.mesh') {
      const mesh = operation.attributes.get('mesh');
      if (mesh?.kind !== 'dialect' || mesh.body === undefined)
        return reader.fail('the mesh has no axes', operation.at, 'E_SYNTAX');
      const inner = reader.within({ from: mesh.body.from - 1, to: mesh.body.to + 1 });
      this.addMesh(name.value, readMesh(inner), operation.at);
    } else
      reader.fail(
        `'${operation.name}' at module level`,
        operation.at,
        'E_UNSUPPORTED',
        'functions and meshes are read',
      );
  }

  private addFunction(func: MlirFunc, at: number): void {
    if (this.functions.has(func.name))
      this.reader.fail(
        `function '@${func.name}' is defined twice`,
        at,
        'E_DUP',
        'rename one of them',
      );
    this.functions.set(func.name, func);
  }

  private addMesh(name: string, mesh: MlirMesh, at: number): void {
    if (this.meshes.has(name))
      this.reader.fail(`mesh '@${name}' is defined twice`, at, 'E_DUP', 'rename one of them');
    this.meshes.set(name, mesh);
  }

  /** `public @main(%a: T {..}, ...) -> (T {..}) attributes {..} { ... }`. */
  private prettyFunction(at: number): MlirFunc {
    const { reader } = this;
    const visibility =
      ['public', 'private', 'nested'].find((word) => reader.acceptWord(word)) ?? 'public';
    const name = reader.sigil('@', 'the name of the function');
    reader.expect('(');
    const args: BlockArgument[] = [];
    if (!reader.accept(')')) {
      do {
        if (reader.peek('%')) args.push(this.ops.argument());
        else {
          // A declaration names no arguments.
          const type = readType(reader);
          args.push({
            id: `<${args.length}>`,
            type,
            at,
            attributes: optionalDictionary(reader) ?? NO_ATTRIBUTES,
          });
        }
      } while (reader.accept(','));
      reader.expect(')');
    }
    const results: { type: MlirType; attributes: Attributes }[] = [];
    if (reader.accept('->')) {
      if (reader.peek('('))
        results.push(
          ...reader.list('(', ')', () => ({
            type: readType(reader),
            attributes: optionalDictionary(reader) ?? NO_ATTRIBUTES,
          })),
        );
      else results.push({ type: readType(reader), attributes: NO_ATTRIBUTES });
    }
    if (reader.acceptWord('attributes')) readDictionary(reader);
    const body = reader.peek('{') ? this.ops.region() : undefined;
    optionalLocation(reader);
    return { name, at, visibility, args, results, body };
  }

  private genericFunction(operation: Operation, name: string): MlirFunc {
    const { reader } = this;
    const { attributes, regions, at } = operation;
    const signature = attributes.get('function_type');
    if (signature?.kind !== 'type' || signature.type.kind !== 'function')
      return reader.fail(`function '@${name}' has no function_type`, at, 'E_SYNTAX');
    const { inputs, results } = signature.type;
    const dictionary = (list: string, i: number): Attributes => {
      const all = attributes.get(list);
      const entry = all?.kind === 'list' ? all.items[i] : undefined;
      return entry?.kind === 'dict' ? entry.entries : NO_ATTRIBUTES;
    };
    const region = regions[0];
    const body =
      region === undefined || (region.args.length === 0 && region.operations.length === 0)
        ? undefined
        : region;
    if (body !== undefined && body.args.length !== inputs.length)
      reader.fail(
        `'@${name}' has ${inputs.length} inputs, its block ${body.args.length}`,
        at,
        'E_TYPE',
      );
    const args = inputs.map((type, i): BlockArgument => {
      const own = body?.args[i];
      const named = dictionary('arg_attrs', i);
      return own === undefined
        ? { id: `<${i}>`, type, at, attributes: named }
        : { ...own, attributes: named };
    });
    const visibility = attributes.get('sym_visibility');
    return {
      name,
      at,
      visibility: visibility?.kind === 'string' ? visibility.value : 'public',
      args,
      results: results.map((type, i) => ({ type, attributes: dictionary('res_attrs', i) })),
      body: body === undefined ? undefined : { ...body, args: [] },
    };
  }
}

/** `<["p"=2, "q"=4], device_ids=[...]>`. */
function readMesh(reader: MlirReader): MlirMesh {
  const at = reader.pos;
  reader.expect('<');
  const axes = reader.list('[', ']', () => {
    const name = reader.string('the name of a mesh axis');
    reader.expect('=');
    return { name, size: reader.size('the size of the axis') };
  });
  if (axes.length > 64)
    reader.fail(`a mesh of ${axes.length} axes`, at, 'E_LIMIT', 'at most 64 are read');
  let devices: number[] | undefined;
  if (reader.accept(',')) {
    reader.expectWord('device_ids');
    reader.expect('=');
    devices = reader.list('[', ']', () => reader.size('a device'));
  }
  reader.expect('>');
  for (const [i, { name, size }] of axes.entries()) {
    if (axes.findIndex((axis) => axis.name === name) !== i)
      reader.fail(`mesh axis '${name}' is named twice`, at, 'E_DUP', 'rename one of them');
    if (size < 1)
      reader.fail(`mesh axis '${name}' has size ${size}`, at, 'E_TYPE', 'a size is at least 1');
  }
  return { axes, ...defined({ devices }) };
}

/** A mesh written in place of its name: `mesh<["x"=2]>`. */
export function readInlineMesh(reader: MlirReader): MlirMesh {
  reader.expectWord('mesh');
  return readMesh(reader);
}
