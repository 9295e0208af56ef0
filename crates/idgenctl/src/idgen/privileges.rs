//! Privileges, as far as they make objects of a schema untrustworthy.

/// The condition that a role `r` may create objects in a schema `n`, also after SET ROLE, which has_schema_privilege()
/// leaves out if the role does not inherit.
pub const MAY_CREATE: &str = "EXISTS (
    SELECT FROM aclexplode(nspacl) AS given
    WHERE privilege_type = 'CREATE' AND (given.grantee = 0 OR pg_has_role(r.oid, given.grantee, 'MEMBER')))";
