// Checks what docs/orm/javascript.md says about Express and about BigInt in JSON.
import assert from "node:assert/strict";
import { test } from "node:test";
import express from "express";
import { rows } from "./server.mjs";

const [{ id: text }] = await rows("SELECT snowflake_next_id() AS id");
const id = BigInt(text);

const answer = async (app) => {
    const server = app.listen(0, "127.0.0.1");
    try {
        await new Promise((listening) => server.on("listening", listening));
        const response = await fetch(`http://127.0.0.1:${server.address().port}/`);
        return { status: response.status, body: await response.text() };
    } finally {
        server.close();
    }
};

const app = express();
app.set("env", "test");
app.get("/", (request, response) => response.json({ id, photos: [{ user_id: id, text }] }));

test("a BigInt is an error", async () => {
    assert.throws(() => JSON.stringify({ id }), { name: "TypeError" });
    const { status, body } = await answer(app);
    assert.equal(status, 500);
    assert.match(body, /Do not know how to serialize a BigInt/);
});

test("with a replacer it is text", async () => {
    const user = { id };
    const text = JSON.stringify(user, (_, value) => typeof value === "bigint" ? String(value) : value);
    assert.equal(text, `{"id":"${id}"}`);

    app.set("json replacer", (_, value) => typeof value === "bigint" ? String(value) : value);
    const { status, body } = await answer(app);
    assert.equal(status, 200);
    assert.equal(body, `{"id":"${id}","photos":[{"user_id":"${id}","text":"${id}"}]}`);
});
