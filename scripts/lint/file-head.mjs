/**
 * An ESLint rule: a file opens with a block comment of at least `words` words, before its first
 * statement. The comment says what goes into the file, what comes out, and its source where there
 * is one.
 *
 * @type {import('eslint').Rule.RuleModule}
 */
export const fileHead = {
  meta: {
    type: 'suggestion',
    docs: { description: 'a file opens with a paragraph that says what it is' },
    schema: [
      {
        type: 'object',
        properties: { words: { type: 'integer', minimum: 1 } },
        additionalProperties: false,
      },
    ],
    messages: {
      missing:
        'Open the file with one paragraph /** ... */ before its imports: what the file does, and ' +
        'its source where it has one.',
      short:
        'The paragraph that opens the file has {{found}} words, at least {{words}} are ' +
        'wanted: say in a sentence what the file does.',
    },
  },
  create(context) {
    /** @type {number} */
    const words = context.options[0]?.words ?? 5;
    return {
      Program(program) {
        const { sourceCode } = context;
        const first = program.body[0];
        const [head] = sourceCode.getAllComments().filter(({ type }) => String(type) !== 'Shebang');
        const opens =
          head?.type === 'Block' &&
          head.value.startsWith('*') &&
          (!first || (head.range?.[1] ?? 0) <= (first.range?.[0] ?? 0));
        if (!opens) return context.report({ loc: { line: 1, column: 0 }, messageId: 'missing' });
        const found = head.value.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
        if (found < words)
          context.report({
            loc: head.loc ?? { line: 1, column: 0 },
            messageId: 'short',
            data: { found: String(found), words: String(words) },
          });
      },
    };
  },
};
