/**
 * Compares a schema with the type that it reads, by the compiler. Public types stay interfaces,
 * because zod is linked into the package and is not a dependency of it: a type that is inferred
 * from a schema would bring zod's types into the types of every user.
 */
import type * as z from 'zod';

/** The type without `readonly`, all the way down: zod says it of nothing. */
type Plain<T> = T extends object ? { -readonly [K in keyof T]: Plain<T[K]> } : T;

/**
 * `true` where two types are one and the same: neither has a field, an optional mark or a word that
 * the other lacks.
 */
type Same<A, B> =
  (<X>() => X extends A ? 1 : 2) extends <X>() => X extends B ? 1 : 2 ? true : false;

/**
 * The schema itself. Does not compile where its type is not exactly `T`.
 *
 * @typeParam Aside fields that are left out of the comparison
 */
export function schemaOf<T, Aside extends keyof T = never>(): <S extends z.ZodType>(
  schema: Same<Plain<Omit<z.output<S>, Aside>>, Plain<Omit<T, Aside>>> extends true ? S : never,
) => S {
  return (schema) => schema;
}
