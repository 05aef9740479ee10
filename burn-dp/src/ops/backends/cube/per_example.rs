//! The launches of the kernels for per-example norms, gradients and coefficients.

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::{CubeCount, CubeDim};
use burn_cubecl::cubecl::{calculate_cube_count_elemwise, client::Client};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::{bits_of, coefficients, convolution, grid, norms, outer_products, public, upload};
use crate::ops::kernels::{UNITS, gradients_shape, parts_shape};
use crate::ops::{ClippingWords, KernelOps, Patches, RoundedUp};

/// Returns the grid for this number of groups of `units` units.
fn grid_of_groups(client: &Client, groups: usize, units: usize) -> (CubeCount, CubeDim) {
    let cube = CubeDim::new_1d(units as u32);
    (calculate_cube_count_elemwise(client, groups * units, cube), cube)
}

impl KernelOps for CubeBackend {
    fn native_part_norms(rows: FloatTensor<Self>, rounded: RoundedUp) -> FloatTensor<Self> {
        let rows = into_contiguous(rows);
        let (client, device) = (rows.client.clone(), rows.device.clone());
        let values = rows.meta.shape()[1];
        let shape = parts_shape(rows.meta.shape());
        let (parts, groups) = (shape[1], shape.num_elements());
        let norms = empty_device_contiguous_dtype(client.clone(), device, shape, DType::F32);
        let units = norms::units(&client);
        let (cubes, cube) = grid_of_groups(&client, groups, units);
        norms::part_norms::launch(
            &client,
            cubes,
            cube,
            rows.into_buffer_arg(),
            norms.clone().into_buffer_arg(),
            values,
            parts,
            groups,
            rounded.factor,
            rounded.added,
            units,
        );
        norms
    }

    fn native_norm_products(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        left_rounded: RoundedUp,
        right_rounded: RoundedUp,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (left, right) = (into_contiguous(left), into_contiguous(right));
        let (client, device) = (left.client.clone(), left.device.clone());
        let groups = left.meta.shape()[0];
        let values = [&left, &right].map(|side| side.meta.shape()[1]);
        let [products, right_norms] = [(); 2].map(|()| {
            let shape = Shape::new([groups]);
            empty_device_contiguous_dtype(client.clone(), device.clone(), shape, DType::F32)
        });
        let units = norms::units(&client);
        let (cubes, cube) = grid_of_groups(&client, groups, units);
        norms::norm_products::launch(
            &client,
            cubes,
            cube,
            left.into_buffer_arg(),
            right.into_buffer_arg(),
            products.clone().into_buffer_arg(),
            right_norms.clone().into_buffer_arg(),
            values[0],
            values[1],
            groups,
            left_rounded.factor,
            left_rounded.added,
            right_rounded.factor,
            right_rounded.added,
            units,
        );
        (products, right_norms)
    }

    fn native_small_convolution_gradients(
        image: FloatTensor<Self>,
        pixels: FloatTensor<Self>,
        patches: Patches,
    ) -> FloatTensor<Self> {
        let (image, pixels) = (into_contiguous(image), into_contiguous(pixels));
        let (client, device) = (image.client.clone(), image.device.clone());
        let shape = gradients_shape(image.meta.shape(), pixels.meta.shape(), &patches);
        let [examples, groups] = [shape[0], shape[1]];
        let channels = [&image, &pixels].map(|side| side.meta.shape()[1] / groups);
        let [kernel_depth, kernel_height, kernel_width] = patches.kernel_size;
        let blocks = channels[1].div_ceil(convolution::CHANNELS);
        let units = examples * groups * blocks * channels[0] * kernel_depth * kernel_height;
        let options = &patches.options;
        let of_tensor = |side: &CubeTensor| [2, 3, 4].map(|axis| side.meta.shape()[axis]);
        let mut sizes = vec![groups, channels[0], channels[1]];
        sizes.extend(of_tensor(&image));
        sizes.extend(of_tensor(&pixels));
        sizes.extend(patches.kernel_size);
        sizes.extend(options.stride);
        sizes.extend(options.padding.map(|(before, _)| before));
        sizes.extend(options.dilation);
        sizes.push(units);
        let sizes = sizes.into_iter().map(|size| size as u32).collect();
        let sizes = public(&client, &device, sizes);
        let gradients = empty_device_contiguous_dtype(client.clone(), device, shape, DType::F32);
        let (cubes, cube) = grid(&client, units);
        convolution::convolution_gradients::launch(
            &client,
            cubes,
            cube,
            image.into_buffer_arg(),
            pixels.into_buffer_arg(),
            sizes.into_buffer_arg(),
            gradients.clone().into_buffer_arg(),
            kernel_width,
            options.stride[2] == 1 && options.dilation[2] == 1,
        );
        gradients
    }

    fn native_selected_rows(
        coefficients: FloatTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let (coefficients, rows) = (bits_of(coefficients), bits_of(rows));
        let (client, device) = (rows.client.clone(), rows.device.clone());
        let [count, values] = [0, 1].map(|axis| rows.meta.shape()[axis]);
        let shape = Shape::new([values]);
        let sums = empty_device_contiguous_dtype(client.clone(), device, shape, DType::F32);
        let (cubes, cube) = grid(&client, values);
        coefficients::selected_rows::launch(
            &client,
            cubes,
            cube,
            coefficients.into_buffer_arg(),
            rows.into_buffer_arg(),
            sums.clone().into_buffer_arg(),
            count,
            values,
        );
        sums
    }

    fn native_selected_outer_products(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let tile_size = outer_products::tile_size(&left.client);
        outer_products::launch(left, right, coefficients, tile_size)
    }

    fn native_selected(
        rows: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        is_scaled: bool,
    ) -> FloatTensor<Self> {
        let (rows, coefficients) = (bits_of(rows), bits_of(coefficients));
        let (client, device) = (rows.client.clone(), rows.device.clone());
        let shape = rows.meta.shape().clone();
        let [count, values] = [0, 1].map(|axis| shape[axis]);
        let selected = empty_device_contiguous_dtype(client.clone(), device, shape, DType::F32);
        let cube = CubeDim::new_1d(UNITS as u32);
        coefficients::selected::launch(
            &client,
            CubeCount::Static(values.div_ceil(UNITS) as u32, count as u32, 1),
            cube,
            rows.into_buffer_arg(),
            coefficients.into_buffer_arg(),
            selected.clone().into_buffer_arg(),
            values,
            is_scaled,
        );
        selected
    }

    fn native_coefficients(
        table: FloatTensor<Self>,
        clipping: ClippingWords,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let table = bits_of(table);
        let (client, device) = (table.client.clone(), table.device.clone());
        let units = table.meta.shape()[1];
        let settings = match clipping.is_public {
            true => public(&client, &device, clipping.words),
            false => upload(&client, &device, &clipping.words),
        };
        let [norms, coefficients] = [clipping.groups, clipping.rows].map(|rows| {
            let shape = Shape::new([rows, units]);
            empty_device_contiguous_dtype(client.clone(), device.clone(), shape, DType::F32)
        });
        let mut words = norms.clone();
        words.dtype = DType::U32;
        let (cubes, cube) = grid(&client, units);
        coefficients::coefficients::launch(
            &client,
            cubes,
            cube,
            table.into_buffer_arg(),
            settings.into_buffer_arg(),
            words.into_buffer_arg(),
            coefficients.clone().into_buffer_arg(),
            units,
            clipping.groups,
            clipping.rows,
        );
        (norms, coefficients)
    }
}
