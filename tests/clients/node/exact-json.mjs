import { isInteger, parse } from "lossless-json";
import pg from "pg";

// An integer that a number would round stays the text that it was.
const exact = (text) => isInteger(text) && !Number.isSafeInteger(Number(text)) ? text : Number(text);

export const parseExactly = (json) =>
    parse(json, null, { parseNumber: exact, onDuplicateKey: ({ newValue }) => newValue });

pg.types.setTypeParser(pg.types.builtins.JSON, parseExactly);
