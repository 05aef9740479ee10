//! Numbers with the digits that are meaningful to a reader.

use std::fmt;

/// Formats a number with few significant digits, rounded to a chosen side.
///
/// An upper bound that is printed with [`up`](Self::up) is still an upper bound. Numbers below 1e-4
/// and from 1e9 on are printed with an exponent.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::Rounded;
///
/// assert_eq!(Rounded::up(2.381596921489).to_string(), "2.38160");
/// assert_eq!(Rounded::down(2.381596921489).to_string(), "2.38159");
/// assert_eq!(Rounded::nearest(256.0 / 6_000.0).with_digits(3).to_string(), "0.0427");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Rounded {
    value: f64,
    digits: usize,
    side: RoundingMode,
    shortest: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RoundingMode {
    Up,
    Down,
    Nearest,
}

/// Default number of significant digits.
const DIGITS: usize = 6;

impl Rounded {
    /// Formats `value` with six significant digits; the printed number is not below `value`.
    pub fn up(value: f64) -> Self {
        Self { value, digits: DIGITS, side: RoundingMode::Up, shortest: false }
    }

    /// Formats `value` with six significant digits; the printed number is not above `value`.
    pub fn down(value: f64) -> Self {
        Self { value, digits: DIGITS, side: RoundingMode::Down, shortest: false }
    }

    /// Formats `value` with six significant digits, rounded to nearest, without trailing zeros.
    pub fn nearest(value: f64) -> Self {
        Self { value, digits: DIGITS, side: RoundingMode::Nearest, shortest: false }
    }

    /// Sets the number of significant digits, at least 1 and at most 15.
    pub fn with_digits(mut self, digits: usize) -> Self {
        self.digits = digits.clamp(1, 15);
        self
    }

    /// Removes trailing zeros.
    pub fn shortest(mut self) -> Self {
        self.shortest = true;
        self
    }

    fn text(&self, value: f64, exponent: i32) -> String {
        if (-4..9).contains(&exponent) {
            format!("{value:.*}", self.decimals(exponent))
        } else {
            format!("{value:.*e}", self.digits - 1)
        }
    }

    fn decimals(&self, exponent: i32) -> usize {
        (self.digits as i32 - 1 - exponent).max(0) as usize
    }

    /// One unit of the last printed digit.
    fn unit(&self, exponent: i32) -> f64 {
        if (-4..9).contains(&exponent) {
            10f64.powi(-(self.decimals(exponent) as i32))
        } else {
            10f64.powi(exponent + 1 - self.digits as i32)
        }
    }
}

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        if value == 0.0 || !value.is_finite() {
            return write!(f, "{value}");
        }
        let exponent = value.abs().log10().floor() as i32;
        let unit = self.unit(exponent);
        let text = self.text(value, exponent);
        let printed: f64 = text.parse().unwrap_or(value);
        let text = match self.side {
            // Below the smallest unit nothing can be added: all digits are exact.
            RoundingMode::Up | RoundingMode::Down if unit == 0.0 => format!("{value:e}"),
            RoundingMode::Up if printed < value => self.text(printed + unit, exponent),
            RoundingMode::Down if printed > value => self.text(printed - unit, exponent),
            _ => text,
        };
        match self.side {
            RoundingMode::Nearest => f.write_str(&without_trailing_zeros(&text)),
            _ if self.shortest => f.write_str(&without_trailing_zeros(&text)),
            _ => f.write_str(&text),
        }
    }
}

/// Returns `text` with decimal numbers of more digits rounded to six significant ones.
pub(crate) fn with_short_numbers(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        let (before, word) = rest.split_at(start);
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let mut end = word.find(|c| !inside(c)).unwrap_or(word.len());
        // The sign of an exponent belongs to the number.
        if word[..end].ends_with('e') && word[end..].starts_with('-') {
            end += 1 + word[end + 1..].find(|c| !inside(c)).unwrap_or(word.len() - end - 1);
        }
        let end = word[..end].trim_end_matches('.').len();
        let digits = word[..end].bytes().filter(u8::is_ascii_digit).count();
        short.push_str(before);
        match word[..end].parse::<f64>() {
            Ok(value) if digits > DIGITS && word[..end].contains('.') => {
                short.push_str(&Rounded::nearest(value).to_string());
            }
            _ => short.push_str(&word[..end]),
        }
        rest = &word[end..];
    }
    short + rest
}

fn without_trailing_zeros(text: &str) -> String {
    let (number, exponent) = text.find('e').map_or((text, ""), |at| text.split_at(at));
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number}{exponent}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn printed_bounds_stay_on_their_side() {
        let values = [
            1.0000004,
            2.381596921489,
            9.99999951,
            1e-7 / 3.0,
            123456.7891,
            0.1,
            9.9999996e-5,
            9.99999996e8,
            1e12 / 7.0,
            1e-300 / 3.0,
        ];
        for value in values {
            let up: f64 = Rounded::up(value).to_string().parse().unwrap();
            assert!(up >= value && up <= value * (1.0 + 1.1e-5), "{value} {up}");
            let down: f64 = Rounded::down(value).to_string().parse().unwrap();
            assert!(down <= value && down >= value * (1.0 - 1.1e-5), "{value} {down}");
        }
    }

    #[test]
    fn numbers_in_a_text_are_shortened_and_nothing_else() {
        let text = "per group, L2 norms fc1 at most 0.5773502691896258, fc2 at most 1e-4. Run \
                    1234567890, layer 1.2.3456789, σ = 1.2345678901234e-12.";
        let short = text.replace("0.5773502691896258", "0.57735");
        let short = short.replace("1.2345678901234e-12", "1.23457e-12");
        assert_eq!(with_short_numbers(text), short);
        assert_eq!(with_short_numbers("é1.23456789é"), "é1.23457é");
        assert_eq!(with_short_numbers("1.2258048909211912"), "1.2258");
        for same in ["", ".", "e-", "1.", "-0.5", "1e-", "12000", "123456789", "inf", "constant"] {
            assert_eq!(with_short_numbers(same), same);
        }
    }

    #[test]
    fn nearest_has_no_trailing_zeros() {
        for (value, text) in [(0.01, "0.01"), (1.1, "1.1"), (20.0, "20"), (1e-5, "1e-5")] {
            assert_eq!(Rounded::nearest(value).to_string(), text);
        }
        assert_eq!(Rounded::nearest(256.0 / 60_000.0).with_digits(4).to_string(), "0.004267");
        assert_eq!(Rounded::up(f64::INFINITY).to_string(), "inf");
        assert_eq!(Rounded::up(0.0).to_string(), "0");
    }
}
