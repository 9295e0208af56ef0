//! The epoch from which ticks are counted, and the conversion between ticks and timestamps.

use std::fmt;
use std::ops::Range;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::id::{MAX_STORED_TICK, MAX_TICK, Parts, Sequence, Shard, Tick, max_id, min_id};

/// PostgreSQL's own form of a `timestamptz`: microseconds since 2000-01-01 00:00:00 UTC
/// (`datatype/timestamp.h`). `i64::MIN` and `i64::MAX` are the two infinities.
pub type Timestamptz = i64;

/// PostgreSQL's `-infinity`.
pub const MINUS_INFINITY: Timestamptz = i64::MIN;
/// PostgreSQL's `infinity`.
pub const INFINITY: Timestamptz = i64::MAX;

/// 2000-01-01 00:00:00 UTC in milliseconds since 1970.
const POSTGRES_EPOCH_MS: i64 = 946_684_800_000;

/// The time of tick 0, in milliseconds since 1970. It is within the years 1 to 9999, which RFC 3339 can represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(i64);

/// The reason why a text is not an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadEpoch {
    /// Neither RFC 3339 nor an integer.
    Form,
    /// A time with a part smaller than a millisecond.
    Fraction,
    /// Outside the years 1 to 9999.
    Range,
    /// An integer that, read as seconds, is a time between 1973 and 2286. Read as milliseconds it is between January
    /// and April 1970, and ids that count from there were used up by 2005.
    Seconds,
}

/// The integers that are refused with [`BadEpoch::Seconds`].
const SECONDS: Range<i128> = 100_000_000..10_000_000_000;

impl fmt::Display for BadEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadEpoch::Form => "The value is neither an RFC 3339 time nor an integer.",
            BadEpoch::Fraction => "The value has a part smaller than a millisecond.",
            BadEpoch::Range => "The value is outside the years 1 to 9999.",
            BadEpoch::Seconds => {
                "The value seems to be in seconds: in milliseconds it would be a time in early 1970."
            }
        })
    }
}

impl std::error::Error for BadEpoch {}

/// Formats a time to the second: `2025-01-01 00:00:00 UTC`. `None` outside the years 1 to 9999.
///
/// ```
/// use idgen_ids::epoch::utc;
///
/// assert_eq!(utc(1_735_689_600_999).as_deref(), Some("2025-01-01 00:00:00 UTC"));
/// assert_eq!(utc(i64::MAX), None);
/// ```
pub fn utc(unix_ms: i64) -> Option<String> {
    let Epoch(ms) = Epoch::from_unix_ms(unix_ms).ok()?;
    let at = OffsetDateTime::from_unix_timestamp(ms.div_euclid(1000)).ok()?;
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    let (hour, minute, second) = at.to_hms();
    Some(format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"))
}

impl Epoch {
    /// The least epoch: 0001-01-01T00:00:00Z.
    pub const MIN_UNIX_MS: i64 = -62_135_596_800_000;
    /// The greatest epoch: 9999-12-31T23:59:59.999Z.
    pub const MAX_UNIX_MS: i64 = 253_402_300_799_999;

    /// The epoch at `ms` milliseconds since 1970.
    ///
    /// # Errors
    /// [`BadEpoch::Range`] outside the years 1 to 9999.
    pub const fn from_unix_ms(ms: i64) -> Result<Epoch, BadEpoch> {
        if Epoch::MIN_UNIX_MS <= ms && ms <= Epoch::MAX_UNIX_MS {
            Ok(Epoch(ms))
        } else {
            Err(BadEpoch::Range)
        }
    }

    /// Reads the setting `idgen.epoch`: an RFC 3339 time, or integer milliseconds since 1970.
    ///
    /// # Errors
    /// A [`BadEpoch`] that says what is wrong with the text.
    ///
    /// ```
    /// use idgen_ids::Epoch;
    /// use idgen_ids::epoch::BadEpoch;
    ///
    /// let epoch = Epoch::parse("2025-01-01T00:00:00Z").unwrap();
    /// assert_eq!(Epoch::parse("1735689600000"), Ok(epoch));
    /// assert_eq!(Epoch::parse("2025-01-01"), Err(BadEpoch::Form));
    /// ```
    pub fn parse(text: &str) -> Result<Epoch, BadEpoch> {
        let text = text.trim();
        if let Ok(ms) = text.parse::<i128>() {
            if SECONDS.contains(&ms) {
                return Err(BadEpoch::Seconds);
            }
            return i64::try_from(ms).map_err(|_| BadEpoch::Range).and_then(Epoch::from_unix_ms);
        }
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| BadEpoch::Form)?;
        let ns = moment.unix_timestamp_nanos();
        if ns % 1_000_000 != 0 {
            return Err(BadEpoch::Fraction);
        }
        i64::try_from(ns / 1_000_000).map_err(|_| BadEpoch::Range).and_then(Epoch::from_unix_ms)
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(self) -> i64 {
        self.0
    }

    /// The time at which a tick of up to 41 bits begins, in milliseconds since 1970.
    pub fn unix_ms_of(self, tick: Tick) -> i64 {
        self.0 + tick.min(MAX_STORED_TICK).cast_signed()
    }

    /// The epoch as a PostgreSQL timestamp.
    pub fn timestamp(self) -> Timestamptz {
        (self.0 - POSTGRES_EPOCH_MS) * 1000
    }

    /// The time at which a tick of up to 41 bits begins.
    ///
    /// ```
    /// use idgen_ids::{Epoch, decode};
    ///
    /// let epoch = Epoch::parse("2011-08-24T21:07:01.721Z").unwrap();
    /// let created_at = epoch.timestamp_of(decode(11_637_205_501_278_089).tick);
    /// assert_eq!(created_at, 368_922_484_721_000);    // 2011-09-09 22:28:04.721 UTC
    /// ```
    pub fn timestamp_of(self, tick: Tick) -> Timestamptz {
        self.timestamp() + tick.min(MAX_STORED_TICK).cast_signed() * 1000
    }

    /// The tick that contains a timestamp; `None` unless ids can be minted for it, from the epoch on and for 2^40 ms.
    ///
    /// ```
    /// use idgen_ids::{Epoch, decode, min_id};
    ///
    /// // Rows made since then have at least this id.
    /// let epoch = Epoch::parse("2011-08-24T21:07:01.721Z").unwrap();
    /// let since = epoch.tick_of(368_922_484_721_999).unwrap();
    /// assert_eq!(since, 1_387_263_000);
    /// assert!(min_id(since) <= 11_637_205_501_278_089);
    ///
    /// assert_eq!(epoch.tick_of(epoch.timestamp() - 1), None);
    /// ```
    pub fn tick_of(self, timestamp: Timestamptz) -> Option<Tick> {
        u64::try_from(self.ms_since(timestamp)).ok().filter(|tick| *tick <= MAX_TICK)
    }

    /// The least id, over all shards, minted in the millisecond of a timestamp or later. Before the epoch this is 0,
    /// because ids begin there. `None` if the timestamp is later than that of every `bigint`.
    ///
    /// ```
    /// use idgen_ids::Epoch;
    /// use idgen_ids::epoch::{INFINITY, MINUS_INFINITY};
    ///
    /// let epoch = Epoch::parse("2025-01-01T00:00:00Z").unwrap();
    /// assert_eq!(epoch.min_id_of(epoch.timestamp() + 1000), Some(1 << 23));
    /// assert_eq!((epoch.min_id_of(MINUS_INFINITY), epoch.min_id_of(INFINITY)), (Some(0), None));
    /// ```
    pub fn min_id_of(self, timestamp: Timestamptz) -> Option<i64> {
        let tick = self.ms_since(timestamp).max(0).cast_unsigned();
        (tick <= MAX_TICK).then(|| min_id(tick))
    }

    /// The greatest id, over all shards, minted up to the millisecond of a timestamp. After the end of the range this
    /// is the last id of all; before the epoch it is -1, which is less than every id.
    ///
    /// ```
    /// use idgen_ids::Epoch;
    /// use idgen_ids::epoch::{INFINITY, MINUS_INFINITY};
    ///
    /// let epoch = Epoch::parse("2025-01-01T00:00:00Z").unwrap();
    /// assert_eq!(epoch.max_id_of(epoch.timestamp() + 1000), (2 << 23) - 1);
    /// assert_eq!((epoch.max_id_of(MINUS_INFINITY), epoch.max_id_of(INFINITY)), (-1, i64::MAX));
    /// ```
    pub fn max_id_of(self, timestamp: Timestamptz) -> i64 {
        match u64::try_from(self.ms_since(timestamp)) {
            Ok(tick) => max_id(tick.min(MAX_TICK)),
            Err(_) => -1,
        }
    }

    /// Whole milliseconds from the epoch to a timestamp. The infinities are far outside the range of ticks.
    fn ms_since(self, timestamp: Timestamptz) -> i64 {
        timestamp.saturating_sub(self.timestamp()).div_euclid(1000)
    }
}

/// Builds an id; `None` if ids cannot be minted for that timestamp.
///
/// ```
/// use idgen_ids::{Epoch, Sequence, Shard, decode, make_id};
///
/// let epoch = Epoch::parse("2011-08-24T21:07:01.721Z").unwrap();
/// let parts = decode(11_637_205_501_278_089);
/// let moment = epoch.timestamp_of(parts.tick);
/// assert_eq!(make_id(epoch, moment, parts.shard, parts.sequence), Some(11_637_205_501_278_089));
/// assert_eq!(make_id(epoch, epoch.timestamp() - 1, parts.shard, parts.sequence), None);
/// ```
pub fn make_id(epoch: Epoch, moment: Timestamptz, shard: Shard, sequence: Sequence) -> Option<i64> {
    Some(Parts { tick: epoch.tick_of(moment)?, shard, sequence }.id())
}

/// The time at which a tick begins, counted from an epoch given as a timestamp. `None` if the epoch is an infinity, or
/// if the result is outside the range of a `timestamptz`.
pub fn timestamp_since(epoch: Timestamptz, tick: Tick) -> Option<Timestamptz> {
    if epoch == INFINITY || epoch == MINUS_INFINITY {
        return None;
    }
    let us = i64::try_from(tick).ok()?.checked_mul(1000)?;
    epoch.checked_add(us).filter(|t| *t < END_TIMESTAMP)
}

/// The first time that PostgreSQL cannot represent, 294277-01-01 (`END_TIMESTAMP` of `datatype/timestamp.h`).
const END_TIMESTAMP: Timestamptz = 9_223_371_331_200_000_000;
