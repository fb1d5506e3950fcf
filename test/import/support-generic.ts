import { parseModule } from '../../src/import/mlir/module.ts';
import type {
  Attributes,
  BlockArgument,
  MlirAttribute,
  MlirFunc,
  Operation,
  Region,
} from '../../src/import/mlir/syntax/syntax.ts';
import { typeName } from '../../src/import/mlir/syntax/types.ts';

/**
 * Prints MLIR text in the generic form, as `--mlir-print-op-generic` does, so that both forms can
 * be compared.
 */
export function genericText(text: string): string {
  const { module } = parseModule(text);
  let fresh = 0;

  const attribute = (value: MlirAttribute, name: string): string => {
    switch (value.kind) {
      case 'int':
        return `${value.value} : i64`;
      case 'float':
        return value.bits !== undefined
          ? `${value.bits} : f32`
          : `${value.value.toExponential(9)} : f32`;
      case 'bool':
        return String(value.value);
      case 'string':
        return ENUMS[name] === undefined
          ? JSON.stringify(value.value)
          : `#stablehlo<${ENUMS[name]} ${value.value}>`;
      case 'symbol':
        return `@${value.name}`;
      case 'list':
        if (value.items.length > 0 && value.items.every((item) => item.kind === 'int'))
          return `array<i64: ${value.items.map((item) => (item.kind === 'int' ? String(item.value) : '')).join(', ')}>`;
        return `[${value.items.map((item) => attribute(item, name)).join(', ')}]`;
      case 'dict': {
        const members = [...value.entries].map(([k, v]) => `${k} = ${attribute(v, k)}`).join(', ');
        return name === 'dot_dimension_numbers' ? `#stablehlo.dot<${members}>` : `{${members}}`;
      }
      case 'dense':
        return `dense<${text.slice(value.payload.from, value.payload.to)}> : ${typeName(value.type)}`;
      case 'resource':
        return `dense_resource<${value.name}> : ${typeName(value.type)}`;
      case 'dialect':
        return value.body === undefined
          ? `#${value.name}`
          : `#${value.name}<${text.slice(value.body.from, value.body.to)}>`;
      case 'alias':
        return `#${value.name}`;
      case 'type':
        return typeName(value.type);
      case 'unit':
        return 'unit';
    }
  };
  const dictionary = (attributes: Attributes): string =>
    [...attributes]
      .map(
        ([name, value]) =>
          `${/^[\w.]+$/.test(name) ? name : JSON.stringify(name)} = ${attribute(value, name)}`,
      )
      .join(', ');

  const region = (r: Region, ids: ReadonlyMap<string, string>, indent: string): string => {
    const own = new Map(ids);
    const name = (id: string): string => {
      if (!id.startsWith('<')) return id;
      const known = own.get(id);
      if (known !== undefined) return known;
      own.set(id, `made_${fresh++}`);
      return own.get(id)!;
    };
    const args = r.args.map((arg) => `%${name(arg.id)}: ${typeName(arg.type)}`).join(', ');
    const ops = r.operations.map((op) => operation(op, own, name, `${indent}  `));
    return `{\n${indent}^bb0${r.args.length > 0 ? `(${args})` : ''}:\n${ops.join('\n')}\n${indent}}`;
  };

  const operation = (
    op: Operation,
    ids: ReadonlyMap<string, string>,
    name: (id: string) => string,
    indent: string,
  ): string => {
    const results = op.results
      .map(({ id, count }) => `%${name(id)}${count === 1 ? '' : `:${count}`}`)
      .join(', ');
    const uses = op.operands
      .map((use) => `%${name(use.id)}${use.result === 0 ? '' : `#${use.result}`}`)
      .join(', ');
    const regions =
      op.regions.length === 0
        ? ''
        : ` (${op.regions.map((r) => region(r, ids, indent)).join(', ')})`;
    const props = op.attributes.size === 0 ? '' : ` <{${dictionary(op.attributes)}}>`;
    const types = `(${op.operandTypes.map(typeName).join(', ')}) -> (${op.resultTypes.map(typeName).join(', ')})`;
    return `${indent}${results === '' ? '' : `${results} = `}"${op.name}"(${uses})${props}${regions} : ${types}`;
  };

  const func = (f: MlirFunc): string => {
    const attrs = (list: readonly { readonly attributes: Attributes }[]): string =>
      list.map((entry) => `{${dictionary(entry.attributes)}}`).join(', ');
    const type = `(${f.args.map((a) => typeName(a.type)).join(', ')}) -> (${f.results.map((r) => typeName(r.type)).join(', ')})`;
    const args: readonly BlockArgument[] = f.args;
    const body = region({ args, operations: f.body?.operations ?? [], at: 0 }, new Map(), '  ');
    const props = [
      `arg_attrs = [${attrs(f.args)}]`,
      `function_type = ${type}`,
      `res_attrs = [${attrs(f.results)}]`,
      `sym_name = ${JSON.stringify(f.name)}`,
      `sym_visibility = ${JSON.stringify(f.visibility)}`,
    ];
    return `  "func.func"() <{${props.join(', ')}}> (${body}) : () -> ()`;
  };

  const meshes = [...module.meshes].map(
    ([name, mesh]) =>
      `  "sdy.mesh"() <{mesh = #sdy.mesh<[${mesh.axes.map((a) => `${JSON.stringify(a.name)}=${a.size}`).join(', ')}]>, sym_name = ${JSON.stringify(name)}}> : () -> ()`,
  );
  const name = module.name === undefined ? '' : `sym_name = ${JSON.stringify(module.name)}`;
  return `"builtin.module"() <{${name}}> ({\n${[...meshes, ...[...module.functions.values()].map(func)].join('\n')}\n}) : () -> ()\n`;
}

const ENUMS: Readonly<Record<string, string>> = {
  comparison_direction: 'comparison_direction',
  compare_type: 'comparison_type',
  precision_config: 'precision',
};
