"""Image collections with labels: found first, decoded a few at a time, and nothing in them is run.

FILE.npz             x_train, y_train and perhaps x_test, y_test, classes; x is uint8 of shape
                     (n, height, width, 3) or, where the images are grey, (n, height, width)
CIFAR-10, CIFAR-100  the folder of the python version: data_batch_1 to 5 and test_batch, or train and test
Oxford-IIIT Pet      images/*.jpg, annotations/trainval.txt and test.txt
folders              CLASS/*.png or .jpg, or train/CLASS/... and perhaps test/CLASS/...
"""
