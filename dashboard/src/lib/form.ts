/** The fields of a form that are filled in, without blanks around them. */
export function filled(fields: Iterable<[string, FormDataEntryValue]>): Record<string, string> {
  const texts = [...fields].map(([name, value]) => [name, String(value).trim()]);
  return Object.fromEntries(texts.filter(([, text]) => text));
}

/** Fields whose values are numbers. */
const NUMBERS = ['rate', 'burst', 'port'];

/** The same, with numbers as the API takes them. */
export const typed = (
  fields: Iterable<[string, FormDataEntryValue]>,
): Record<string, string | number> =>
  Object.fromEntries(
    Object.entries(filled(fields)).map(([name, text]) => [
      name,
      NUMBERS.includes(name) ? Number(text) : text,
    ]),
  );
