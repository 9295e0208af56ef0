<?php
// Required by the programs in PHP.

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

// Whether ids ascend and exceed what a double keeps.
function are_ids(array $ids): bool
{
    $sorted = array_unique($ids);
    sort($sorted);
    return $sorted === $ids && $ids[0] > 2 ** 53;
}

// What a browser makes of an integer in JSON.
function rounded(int $id): int
{
    return (int) (float) $id;
}
