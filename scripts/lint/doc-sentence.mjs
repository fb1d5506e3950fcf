/**
 * An ESLint rule: a doc comment begins with a noun or a verb. A clause without its noun (`What a
 * run costs.`, `Whether it fits.`, `Of the first.`) cannot be read without the code below it.
 *
 * @type {import('eslint').Rule.RuleModule}
 */
export const docSentence = {
  meta: {
    type: 'suggestion',
    docs: { description: 'a doc comment begins with a noun or a verb' },
    schema: [],
    messages: {
      clause:
        "A doc comment that begins with '{{word}}' is a clause without its noun: name the thing " +
        "('The price of a run'), or say 'True if', 'Tells whether'.",
    },
  },
  create(context) {
    return {
      Program() {
        for (const { type, value, loc } of context.sourceCode.getAllComments()) {
          if (type !== 'Block' || !value.startsWith('*')) continue;
          const word = /^\*[\s*]*(What|Whether|Of)\s/.exec(value)?.[1];
          if (word !== undefined)
            context.report({
              loc: loc ?? { line: 1, column: 0 },
              messageId: 'clause',
              data: { word },
            });
        }
      },
    };
  },
};
