//! Fence checks in a SQL database: a row rejects stale writes.
//!
//! Give the table a column `fence BIGINT NOT NULL DEFAULT 0`, and let every write compare and set it **in the same
//! statement** (or the same transaction, after locking the row), so that the database makes the two atomic. If the
//! statement changed no row, the fence was stale.
//!
//! ```sql
//! UPDATE orders SET state = $1, fence = $2
//!  WHERE id = $3 AND fence <= $2 AND $2 > 0;
//! ```
//!
//! [`update`] generates that condition, so that it is not mistyped. With [`GUARD_FUNCTION`], the database itself
//! rejects every stale update with an error.

/// The condition to add with `AND` to the `WHERE` of an `UPDATE` or `DELETE`; `parameter` is the fence's
/// placeholder, such as `$2` or `?2`.
///
/// ```
/// assert_eq!(lockkeeper::fence::sql::condition("$2"), "fence <= $2 AND $2 > 0");
/// ```
pub fn condition(parameter: &str) -> String {
    format!("fence <= {parameter} AND {parameter} > 0")
}

/// An `UPDATE` of one row that changes nothing if the fence is stale.
///
/// `table`, `set` and `row` are SQL and must not contain untrusted input.
///
/// ```
/// let sql = lockkeeper::fence::sql::update("orders", "state = $1", "id = $3", "$2");
/// assert_eq!(sql, "UPDATE orders SET state = $1, fence = $2 WHERE (id = $3) AND fence <= $2 AND $2 > 0");
/// ```
pub fn update(table: &str, set: &str, row: &str, parameter: &str) -> String {
    format!("UPDATE {table} SET {set}, fence = {parameter} WHERE ({row}) AND {}", condition(parameter))
}

/// A trigger function for PostgreSQL. It rejects an update whose new `fence` is lower than the row's, with SQLSTATE
/// `LK001`.
///
/// Attach it with `CREATE TRIGGER fence BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION
/// lockkeeper_reject_stale()`. An update that does not set `fence` keeps the old one and passes: the trigger
/// protects against stale holders, not against writers that have no lock at all.
pub const GUARD_FUNCTION: &str = "\
CREATE OR REPLACE FUNCTION lockkeeper_reject_stale() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.fence < OLD.fence THEN
        RAISE EXCEPTION 'stale fence %: % has been seen', NEW.fence, OLD.fence USING ERRCODE = 'LK001';
    END IF;
    RETURN NEW;
END $$";
