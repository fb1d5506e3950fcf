/**
 * `shardwright/eslint`: an ESLint plugin with the rule `no-tensor-coercion`, and a config for model
 * files that joins it with the two stock typed rules that see conditions. ESLint and
 * typescript-eslint are the user's; their types are only described here as far as they are used.
 */

import type ts from 'typescript';

import { tensorCoercions } from './no-tensor-coercion.ts';

/** The part of ESLint that a rule sees. */
interface RuleContext {
  readonly sourceCode: {
    readonly parserServices: {
      readonly program?: ts.Program | null;
      readonly esTreeNodeToTSNodeMap?: { get(node: unknown): ts.Node };
    };
  };
  report(problem: { readonly loc: { start: Point; end: Point }; readonly message: string }): void;
}

interface Point {
  readonly line: number;
  readonly column: number;
}

const rule = {
  meta: {
    type: 'problem' as const,
    docs: { description: 'disallow uses of traced tensors that JavaScript gives another meaning' },
    schema: [],
  },
  create(context: RuleContext): { Program(node: unknown): void } {
    return {
      Program(node) {
        const { program, esTreeNodeToTSNodeMap } = context.sourceCode.parserServices;
        if (program === undefined || program === null || esTreeNodeToTSNodeMap === undefined)
          throw new Error(
            'shardwright/no-tensor-coercion needs type information: set ' +
              'parserOptions.projectService, as typescript-eslint describes.',
          );
        const file = esTreeNodeToTSNodeMap.get(node).getSourceFile();
        for (const finding of tensorCoercions(file, program.getTypeChecker()))
          context.report({
            loc: {
              start: point(file, finding.node.getStart(file)),
              end: point(file, finding.node.getEnd()),
            },
            message: finding.message,
          });
      },
    };
  },
};

function point(file: ts.SourceFile, offset: number): Point {
  const { line, character } = file.getLineAndCharacterOfPosition(offset);
  return { line: line + 1, column: character };
}

/** The plugin, for a config of your own: `plugins: { shardwright: plugin }`. */
export const plugin = {
  meta: { name: 'shardwright' },
  rules: { 'no-tensor-coercion': rule },
};

/** A flat config for model files. */
interface LintConfig {
  readonly files: readonly string[];
  readonly plugins: Readonly<Record<string, unknown>>;
  readonly languageOptions?: Readonly<Record<string, unknown>>;
  readonly rules: Readonly<Record<string, unknown>>;
}

/**
 * The config for files that hold traced functions, `*.model.ts` unless said otherwise. Use it after
 * your own config, which must set up typed linting; hand in your typescript-eslint, whose two rules
 * see the conditions themselves:
 *
 *     import tseslint from 'typescript-eslint';
 *     import { models } from 'shardwright/eslint';
 *     export default tseslint.config(..., models(tseslint));
 */
export function models(
  tseslint: { readonly plugin: unknown },
  files: readonly string[] = ['**/*.model.{ts,mts}'],
): LintConfig {
  return {
    files,
    plugins: { '@typescript-eslint': tseslint.plugin, shardwright: plugin },
    rules: {
      '@typescript-eslint/no-unnecessary-condition': 'error',
      '@typescript-eslint/strict-boolean-expressions': ['error', { allowNullableObject: false }],
      'shardwright/no-tensor-coercion': 'error',
    },
  };
}

export default { plugin, models };
