//! Privileges that make objects in a schema untrustworthy.

use crate::connection::session::Session;
use crate::terminal::error::Result;

/// The condition that a role `r` may create objects in a schema `n`, also after SET ROLE, which has_schema_privilege()
/// leaves out if the role does not inherit.
pub const MAY_CREATE: &str = "EXISTS (
    SELECT FROM aclexplode(nspacl) AS given
    WHERE privilege_type = 'CREATE' AND (given.grantee = 0 OR pg_has_role(r.oid, given.grantee, 'MEMBER')))";

/// Statements that create a schema in which other roles only get USAGE, whatever the default privileges are.
pub fn new_schema(session: &Session, schema: &str) -> Result<String> {
    let name = Session::identifier(schema);
    let others = session.value(
        "SELECT concat_ws(', ', 'PUBLIC', string_agg(DISTINCT quote_ident(rolname), ', '))
         FROM pg_default_acl, aclexplode(defaclacl) JOIN pg_roles AS r ON r.oid = grantee
         WHERE defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user)
           AND defaclobjtype = 'n' AND grantee <> defaclrole",
        &[],
    )?;
    let revoke = format!("REVOKE ALL ON SCHEMA {name} FROM {others}");
    Ok(format!("CREATE SCHEMA {name}; {revoke}; GRANT USAGE ON SCHEMA {name} TO PUBLIC"))
}
