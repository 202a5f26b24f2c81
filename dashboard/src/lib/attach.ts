import { typed } from './form';

/** Built-in handlers that the page attaches, each with the fields of its own. */
export const HANDLERS: Record<string, string[]> = {
  count: [],
  drop: ['source', 'destination', 'protocol', 'port'],
  'rate-limit': ['rate', 'burst'],
  mirror: ['to'],
};

/** Fields that are conditions on packets: a drop without one drops all. */
const CONDITIONS = HANDLERS.drop;

/** The order to attach a handler, as the fields of the form say. */
export function attachment(fields: Iterable<[string, FormDataEntryValue]>): Record<string, unknown> {
  const given = Object.entries(typed(fields));
  const conditions = given.filter(([name]) => CONDITIONS.includes(name));
  const order = given.filter(([name]) => !CONDITIONS.includes(name));
  return {
    ...Object.fromEntries(order),
    ...(conditions.length ? { match: Object.fromEntries(conditions) } : {}),
  };
}
