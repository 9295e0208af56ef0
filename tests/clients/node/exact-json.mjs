import { isInteger, parse } from "lossless-json";
import pg from "pg";

// Keeps an integer as text if a JavaScript number would round it.
const exact = (text) => isInteger(text) && !Number.isSafeInteger(Number(text)) ? text : Number(text);

export const parseExactly = (json) =>
    parse(json, null, { parseNumber: exact, onDuplicateKey: ({ newValue }) => newValue });

pg.types.setTypeParser(pg.types.builtins.JSON, parseExactly);
