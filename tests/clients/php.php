<?php
// Included by the PHP programs.

function same(mixed $expected, mixed $found): void
{
    if ($expected !== $found) {
        throw new Exception(var_export($found, true) . ' is not ' . var_export($expected, true));
    }
}

// The function must fail with this SQLSTATE.
function fails(string $state, callable $function): void
{
    try {
        $function();
    } catch (Exception $error) {
        while ($error->getPrevious()) {
            $error = $error->getPrevious();
        }
        same($state, $error->getCode());
        return;
    }
    throw new Exception("no $state");
}

// Whether ids ascend and are too large for a double.
function are_ids(array $ids): bool
{
    $sorted = array_unique($ids);
    sort($sorted);
    return $sorted === $ids && $ids[0] > 2 ** 53;
}

// How a browser reads an integer in JSON.
function rounded(int $id): int
{
    return (int) (float) $id;
}
