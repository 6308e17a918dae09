//! Conversion of SVG to PNG, with an embedded font, so that the picture does not depend on the system's fonts.

use crate::exit::BoxError;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// The number of pixels per unit of the SVG: sharp on a projector.
const SCALE: f32 = 2.0;

/// The reason why an SVG cannot be rendered as PNG.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The SVG is invalid.
    #[error("{0}")]
    Svg(#[from] resvg::usvg::Error),
    /// The picture is smaller than a pixel.
    #[error("the picture has no size")]
    NoSize,
    /// The pixels cannot be encoded.
    #[error("{0}")]
    Encode(#[source] BoxError),
}

/// Renders an SVG as PNG.
pub fn draw(svg: &str) -> Result<Vec<u8>, PngError> {
    let mut options = Options { font_family: "DejaVu Sans".into(), ..Options::default() };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree = Tree::from_str(svg, &options)?;
    let size = tree.size();
    let (width, height) = ((size.width() * SCALE) as u32, (size.height() * SCALE) as u32);
    let mut pixels = Pixmap::new(width, height).ok_or(PngError::NoSize)?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| PngError::Encode(error.into()))
}

#[cfg(test)]
mod tests {
    use super::{PngError, draw};

    #[test]
    fn letters_are_drawn_without_the_systems_fonts() {
        let svg = |text: &str| {
            format!(
                "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'><text y='15'>{text}</text></svg>"
            )
        };
        let empty = draw(&svg("")).unwrap();
        assert_eq!(&empty[1..4], b"PNG");
        assert_ne!(draw(&svg("√N")).unwrap(), empty);
        assert!(matches!(draw("no svg"), Err(PngError::Svg(_))));
    }
}
