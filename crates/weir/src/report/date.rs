//! Dates as text.

use std::time::{SystemTime, UNIX_EPOCH};

/// In UTC, as in RFC 3339.
pub fn date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86400);
    let of_day = seconds % 86400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day since 1970. Years begin in March here, so that the leap day is
/// the last; 400 of them have 146097 days, in every 5 months from March there are 153.
fn civil(day: u64) -> (u64, u64, u64) {
    const TO_1970: u64 = 719_468;
    let day = day + TO_1970;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
